//! command set
