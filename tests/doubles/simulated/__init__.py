"""A simulated model as a provider: any run against it decides as with the simulated model itself, and faults can be asked for."""
