//! spillgate-admin
