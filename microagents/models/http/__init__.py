"""The common base of providers behind HTTP."""
