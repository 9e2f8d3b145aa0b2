//! spillgate-telemetry
