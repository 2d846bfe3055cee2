"""Pictures and video frames to the arrays that the models take."""
