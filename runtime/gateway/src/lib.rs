//! spillgate-gateway
