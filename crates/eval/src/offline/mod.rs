//! The `offline` judge: rules, no model, no network, the same answer every time.
