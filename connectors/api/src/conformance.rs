//! The conformance suite: what every connector must keep.
