//! What the project promises, one file per promise. One binary, so that all of them run side by side.
