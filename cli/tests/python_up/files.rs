//! Files of McpGroups.
