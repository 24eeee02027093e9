//! The cloud's HTTP API: client and server.
//!
//! | request | response |
//! | --- | --- |
//! | `POST /instances` `{name, runner_version}` | 201 with the instance |
//! | `GET /instances/ID` | 200 with the instance, 404 |
//! | `POST /instances/ID/restart` | 200 when it boots again, 404 |
//! | `DELETE /instances/ID` | 200 when it is gone, 404 |

use std::sync::{Arc, Weak};

use anyhow::bail;
use hyper::{Method, Request, StatusCode, body::Incoming};
use serde::{Deserialize, Serialize};

use super::{Instance, Shared, lock};
use crate::lab::http::{self, Answer};

#[derive(Debug, Serialize, Deserialize)]
struct Create {
    name: String,
    runner_version: String,
}

/// Creates an instance; returns when its boot has begun.
pub async fn create(endpoint: &str, name: &str, runner_version: &str) -> anyhow::Result<Instance> {
    let body = Create { name: name.to_owned(), runner_version: runner_version.to_owned() };
    let reply = http::send("POST", &format!("{endpoint}/instances"), Some(&body)).await?;
    match reply.status {
        StatusCode::CREATED => reply.json(),
        status => bail!("the cloud answered {status}: {}", reply.text()),
    }
}

/// The instance, `None` when there is none with this id.
pub async fn read(endpoint: &str, id: &str) -> anyhow::Result<Option<Instance>> {
    let reply = http::get(&format!("{endpoint}/instances/{id}")).await?;
    match reply.status {
        StatusCode::OK => Ok(Some(reply.json()?)),
        StatusCode::NOT_FOUND => Ok(None),
        status => bail!("the cloud answered {status}: {}", reply.text()),
    }
}

/// Stops an instance and starts it again, without a drain; returns when its boot has begun.
pub async fn restart(endpoint: &str, id: &str) -> anyhow::Result<()> {
    let reply = http::send("POST", &format!("{endpoint}/instances/{id}/restart"), None::<&()>).await?;
    match reply.status {
        StatusCode::OK => Ok(()),
        status => bail!("the cloud answered {status}: {}", reply.text()),
    }
}

/// Destroys an instance, and returns when no process of it is left. A missing instance counts as destroyed.
pub async fn destroy(endpoint: &str, id: &str) -> anyhow::Result<()> {
    let reply = http::send("DELETE", &format!("{endpoint}/instances/{id}"), None::<&()>).await?;
    match reply.status {
        StatusCode::OK | StatusCode::NOT_FOUND => Ok(()),
        status => bail!("the cloud answered {status}: {}", reply.text()),
    }
}

pub(super) async fn run(listener: tokio::net::TcpListener, cloud: Weak<Shared>) {
    http::serve(listener, move |request| route(cloud.upgrade(), request)).await;
}

async fn route(cloud: Option<Arc<Shared>>, request: Request<Incoming>) -> Answer {
    let Some(cloud) = cloud else { return Answer::Hangup };
    let path = request.uri().path().to_owned();
    let id = path.strip_prefix("/instances/").map(str::to_owned);
    match (request.method(), path.as_str(), id) {
        (&Method::POST, "/instances", _) => {
            let wanted: Create = match http::read_json(request).await {
                Ok(wanted) => wanted,
                Err(error) => return http::text(StatusCode::BAD_REQUEST, format!("{error:#}")),
            };
            // Not cancelled: a requested instance is created also if the client disconnects.
            let made =
                tokio::task::spawn_blocking(move || cloud.create(&wanted.name, &wanted.runner_version));
            match made.await {
                Ok(Ok((instance, _))) => http::json(StatusCode::CREATED, &instance),
                Ok(Err(error)) => http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
                Err(error) => http::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        (&Method::POST, _, Some(id)) => {
            let found =
                id.strip_suffix("/restart").and_then(|id| lock(&cloud.stock).instances.get(id).cloned());
            let Some((_, host)) = found else { return http::empty(StatusCode::NOT_FOUND) };
            match tokio::task::spawn_blocking(move || host.reboot()).await {
                Ok(Ok(())) => http::empty(StatusCode::OK),
                Ok(Err(error)) => http::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")),
                Err(error) => http::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        (&Method::GET, _, Some(id)) => match lock(&cloud.stock).instances.get(&id) {
            Some((instance, _)) => http::json(StatusCode::OK, instance),
            None => http::empty(StatusCode::NOT_FOUND),
        },
        (&Method::DELETE, _, Some(id)) => {
            match tokio::task::spawn_blocking(move || cloud.destroy(&id)).await {
                Ok(Some(_)) => http::empty(StatusCode::OK),
                Ok(None) => http::empty(StatusCode::NOT_FOUND),
                Err(error) => http::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        _ => http::empty(StatusCode::NOT_FOUND),
    }
}
