"""Pictures on the pages of `specsim validate`: SVG files, the same bytes for the same figures."""
