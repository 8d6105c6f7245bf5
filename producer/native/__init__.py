"""The optional compiled extension, which encodes rows as the loop of Python does, and whether it is used."""
