"""Reports: the HTML dashboard, the one-screen summary of a results folder, the text of `specsim explain`.

Import from the modules: `sim.report.dashboard` draws with plotly, which the others do without.
"""
