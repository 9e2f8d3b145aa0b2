//! spillgate-postgres
