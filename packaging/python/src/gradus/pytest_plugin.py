"""The pytest plugin: the fixture `gradus` and the marker `gradus`."""
