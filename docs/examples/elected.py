"""New columns of a dataset of Ray Data: every row is asked until its vote is decided."""

import sys

import ray
from places import Places

from microagents.ray_data import elect

if __name__ == "__main__":
    source, target = sys.argv[1:]
    places = ray.data.read_csv(source)
    elected = elect(places, Places, models="sim:gpt-4.1-mini", k=3, output="runs/places", columns=["place"])
    elected.write_csv(target)
