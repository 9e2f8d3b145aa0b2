//! spillgate-sqlite
