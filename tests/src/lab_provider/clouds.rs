//! The resource types and data sources of `hashicorp/aws`, `hashicorp/google`, `hashicorp/tls`, `hashicorp/local` and `hashicorp/external` that the
//! modules in `examples/modules/` and the guides use: their schemas, reduced to the attributes and blocks that these name.
//!
//! `terraform test` with `mock_provider` needs schemas only. Names and types were compared with the documentation of those providers by hand;
//! nothing here shows that a cloud accepts the values.

use std::collections::HashMap;

use async_trait::async_trait;
use grit_plugin::{
    Block, Problems, Registry, Resource,
    schema::{
        Attribute, AttributeConstraint, AttributePath, AttributeType, BlockSchema, NestedBlock, Schema,
        optional, schema,
    },
};

use super::local_file::LocalFile;
use crate::dynamic::Dynamic;

/// A resource type that has a schema, and stores what is planned; or a data source that returns its arguments.
struct Described(fn() -> BlockSchema);

/// The providers, in one program.
pub fn registry() -> Registry {
    Registry::new("registry.terraform.io/runner-tools/clouds", Clouds)
        .resource("aws_autoscaling_group", Described(aws_autoscaling_group))
        .resource("aws_instance", Described(aws_instance))
        .resource("google_compute_instance", Described(google_compute_instance))
        .resource("google_compute_instance_group_manager", Described(google_group))
        .resource("local_file", LocalFile)
        .resource("tls_private_key", Described(tls_private_key))
        .data_source("aws_iam_policy_document", Described(aws_iam_policy_document))
        .data_source("external", Described(external))
        .data_source("google_compute_instance_guest_attributes", Described(guest_attributes))
}

struct Clouds;

#[async_trait]
impl Block for Clouds {
    type Config = Dynamic;
    type Output = ();

    fn schema(&self) -> Schema {
        let (region, project) = (optional(String, "Of AWS and Google."), optional(String, "Of Google."));
        schema(0, "Schemas of clouds.", [("region", region), ("project", project)])
    }

    async fn run(&self, _: Dynamic) -> Result<(), Problems> {
        Ok(())
    }
}

use AttributeConstraint::{Computed, Optional, OptionalComputed, Required};
use AttributeType::{Bool, Number, String};

pub(super) fn texts() -> AttributeType {
    AttributeType::List(Box::new(String))
}

pub(super) fn text_map() -> AttributeType {
    AttributeType::Map(Box::new(String))
}

pub(super) fn block<const N: usize>(
    attributes: [(&str, AttributeConstraint, AttributeType); N],
) -> BlockSchema {
    let attribute = |(name, constraint, attr_type): (&str, AttributeConstraint, AttributeType)| {
        (name.to_owned(), Attribute { attr_type, constraint, ..Attribute::default() })
    };
    BlockSchema { attributes: attributes.into_iter().map(attribute).collect(), ..BlockSchema::default() }
}

pub(super) fn with<'a>(
    block: BlockSchema,
    blocks: impl IntoIterator<Item = (&'a str, NestedBlock)>,
) -> BlockSchema {
    let blocks: HashMap<_, _> = blocks.into_iter().map(|(name, nested)| (name.to_owned(), nested)).collect();
    BlockSchema { blocks, ..block }
}

fn aws_instance() -> BlockSchema {
    let instance = block([
        ("id", Computed, String),
        ("ami", Optional, String),
        ("instance_type", Optional, String),
        ("subnet_id", OptionalComputed, String),
        ("vpc_security_group_ids", OptionalComputed, AttributeType::Set(Box::new(String))),
        ("iam_instance_profile", OptionalComputed, String),
        ("associate_public_ip_address", OptionalComputed, Bool),
        ("user_data", OptionalComputed, String),
        ("user_data_replace_on_change", Optional, Bool),
        ("disable_api_termination", OptionalComputed, Bool),
        ("tags", Optional, text_map()),
        ("private_ip", OptionalComputed, String),
        ("public_ip", Computed, String),
    ]);
    let metadata = block([
        ("http_tokens", OptionalComputed, String),
        ("http_put_response_hop_limit", OptionalComputed, Number),
    ]);
    let disk = block([("volume_size", OptionalComputed, Number), ("encrypted", OptionalComputed, Bool)]);
    with(
        instance,
        [
            ("metadata_options", NestedBlock::Optional(metadata)),
            ("root_block_device", NestedBlock::Optional(disk)),
        ],
    )
}

fn aws_autoscaling_group() -> BlockSchema {
    let group = block([
        ("id", Computed, String),
        ("arn", Computed, String),
        ("name", OptionalComputed, String),
        ("vpc_zone_identifier", OptionalComputed, AttributeType::Set(Box::new(String))),
        ("capacity_rebalance", Optional, Bool),
        ("min_size", Required, Number),
        ("max_size", Required, Number),
        ("desired_capacity", OptionalComputed, Number),
        ("protect_from_scale_in", Optional, Bool),
        ("suspended_processes", Optional, AttributeType::Set(Box::new(String))),
        ("force_delete", Optional, Bool),
    ]);
    let template = block([
        ("id", OptionalComputed, String),
        ("name", OptionalComputed, String),
        ("version", OptionalComputed, String),
    ]);
    let tag = block([
        ("key", Required, String),
        ("value", Required, String),
        ("propagate_at_launch", Required, Bool),
    ]);
    let hook = block([
        ("name", Required, String),
        ("lifecycle_transition", Required, String),
        ("default_result", OptionalComputed, String),
        ("heartbeat_timeout", Optional, Number),
    ]);
    // In releases after July 2026.
    let triggers = block([("terminate_hook_abandon", Optional, String)]);
    let policy = with(block([]), [("retention_triggers", NestedBlock::Optional(triggers))]);
    with(
        group,
        [
            ("initial_lifecycle_hook", NestedBlock::Set(hook)),
            ("instance_lifecycle_policy", NestedBlock::Optional(policy)),
            ("launch_template", NestedBlock::Optional(template)),
            ("tag", NestedBlock::Set(tag)),
        ],
    )
}

fn aws_iam_policy_document() -> BlockSchema {
    let texts = || AttributeType::Set(Box::new(String));
    let statement = block([("actions", Optional, texts()), ("resources", Optional, texts())]);
    with(block([("json", Computed, String)]), [("statement", NestedBlock::List(statement))])
}

fn google_compute_instance() -> BlockSchema {
    let instance = block([
        ("id", Computed, String),
        ("instance_id", Computed, String),
        ("name", Required, String),
        ("zone", OptionalComputed, String),
        ("machine_type", Required, String),
        ("tags", Optional, AttributeType::Set(Box::new(String))),
        ("labels", Optional, text_map()),
        ("metadata", Optional, text_map()),
        ("deletion_protection", Optional, Bool),
    ]);
    let parameters = block([("image", OptionalComputed, String), ("size", OptionalComputed, Number)]);
    let disk = with(block([]), [("initialize_params", NestedBlock::Optional(parameters))]);
    let access = block([("nat_ip", OptionalComputed, String)]);
    let interface = with(
        block([("subnetwork", OptionalComputed, String), ("network_ip", OptionalComputed, String)]),
        [("access_config", NestedBlock::List(access))],
    );
    let account = block([("email", OptionalComputed, String), ("scopes", Required, texts())]);
    with(
        instance,
        [
            ("boot_disk", NestedBlock::Optional(disk)),
            ("network_interface", NestedBlock::List(interface)),
            ("service_account", NestedBlock::Optional(account)),
        ],
    )
}

fn google_group() -> BlockSchema {
    let group = block([
        ("id", Computed, String),
        ("name", Required, String),
        ("base_instance_name", Required, String),
        ("project", OptionalComputed, String),
        ("zone", OptionalComputed, String),
        ("target_size", OptionalComputed, Number),
    ]);
    let version = block([("instance_template", Required, String), ("name", Optional, String)]);
    with(group, [("version", NestedBlock::List(version))])
}

fn tls_private_key() -> BlockSchema {
    let mut key = block([
        ("id", Computed, String),
        ("algorithm", Required, String),
        ("private_key_openssh", Computed, String),
        ("public_key_openssh", Computed, String),
    ]);
    if let Some(private) = key.attributes.get_mut("private_key_openssh") {
        private.sensitive = true;
    }
    key
}

fn external() -> BlockSchema {
    block([("id", Computed, String), ("program", Required, texts()), ("result", Computed, text_map())])
}

fn guest_attributes() -> BlockSchema {
    block([
        ("id", Computed, String),
        ("name", Required, String),
        ("zone", Optional, String),
        ("variable_key", Optional, String),
        ("variable_value", Computed, String),
    ])
}

#[async_trait]
impl Block for Described {
    type Config = Dynamic;
    type Output = Dynamic;

    fn schema(&self) -> Schema {
        Schema { version: 0, block: self.0() }
    }

    async fn run(&self, config: Dynamic) -> Result<Dynamic, Problems> {
        Ok(config)
    }
}

#[async_trait]
impl Resource for Described {
    type State = Dynamic;

    fn schema(&self) -> Schema {
        Schema { version: 0, block: self.0() }
    }

    async fn plan_create(&self, proposed: Dynamic) -> Result<Dynamic, Problems> {
        Ok(proposed)
    }

    async fn plan_update(
        &self,
        _: Dynamic,
        proposed: Dynamic,
    ) -> Result<(Dynamic, Vec<AttributePath>), Problems> {
        Ok((proposed, Vec::new()))
    }

    async fn create(&self, planned: Dynamic) -> Result<Dynamic, Problems> {
        Ok(planned)
    }

    async fn update(&self, _: Dynamic, planned: Dynamic) -> Result<Dynamic, Problems> {
        Ok(planned)
    }
}
