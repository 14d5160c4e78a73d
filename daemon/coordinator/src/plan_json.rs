//! plan_json
