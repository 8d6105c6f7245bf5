"""The optional compiled extension, which encodes rows as the generated codecs do, and whether it is used."""
