"""`python -m sim` is `specsim`."""

from sim.cli import main

if __name__ == "__main__":
    main()
