//! A wrapper that violates `grit.wrapper.v1`: its response to `Drain` has no status. It also serves upstream's shutdown calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use grit_proto::{
    runner_wrapper::{
        CheckStatusRequest, CheckStatusResponse, InitForcefulShutdownRequest, InitForcefulShutdownResponse,
        InitGracefulShutdownRequest, InitGracefulShutdownResponse,
        process_wrapper_server::{ProcessWrapper, ProcessWrapperServer},
    },
    wrapper_v1::{
        self as v1,
        wrapper_server::{Wrapper, WrapperServer},
    },
};
use grit_tests::{
    lab::{Lab, cloud::Instance},
    terraform::Workspace,
};
use serde_json::json;
use tonic::{Request, Response, Status, codegen::BoxStream};

#[derive(Clone, Default)]
struct Malformed {
    drains: Arc<AtomicUsize>,
    upstream_shutdowns: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Wrapper for Malformed {
    async fn get_status(&self, _: Request<v1::GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        Ok(Response::new(v1::Status { state: v1::State::Running.into(), ..v1::Status::default() }))
    }

    async fn drain(&self, _: Request<v1::DrainRequest>) -> Result<Response<v1::DrainResponse>, Status> {
        self.drains.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(v1::DrainResponse::default()))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<BoxStream<v1::Status>>, Status> {
        Err(Status::resource_exhausted("no watch"))
    }

    async fn cancel(&self, _: Request<v1::CancelRequest>) -> Result<Response<v1::CancelResponse>, Status> {
        Err(Status::internal("not expected"))
    }

    async fn start(&self, _: Request<v1::StartRequest>) -> Result<Response<v1::StartResponse>, Status> {
        Err(Status::internal("not expected"))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        Err(Status::internal("not expected"))
    }
}

#[tonic::async_trait]
impl ProcessWrapper for Malformed {
    async fn check_status(
        &self,
        _: Request<CheckStatusRequest>,
    ) -> Result<Response<CheckStatusResponse>, Status> {
        Ok(Response::new(CheckStatusResponse { status: 1, failure_reason: String::new() }))
    }

    async fn init_graceful_shutdown(
        &self,
        _: Request<InitGracefulShutdownRequest>,
    ) -> Result<Response<InitGracefulShutdownResponse>, Status> {
        self.upstream_shutdowns.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(InitGracefulShutdownResponse { status: 2, failure_reason: String::new() }))
    }

    async fn init_forceful_shutdown(
        &self,
        _: Request<InitForcefulShutdownRequest>,
    ) -> Result<Response<InitForcefulShutdownResponse>, Status> {
        self.upstream_shutdowns.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(InitForcefulShutdownResponse { status: 2, failure_reason: String::new() }))
    }
}

#[test]
fn drain_response_without_status_is_an_error() {
    let lab = Lab::start().unwrap();
    let (instance, _host) = lab.cloud().create("m1", "19.2.0").unwrap();
    let wrapper = Malformed::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let served = wrapper.clone();
    // It serves until the test's process ends.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tonic::transport::Server::builder()
                .add_service(WrapperServer::new(served.clone()))
                .add_service(ProcessWrapperServer::new(served))
                .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener))
                .await
        })
    });

    let manager = Instance { wrapper_address: format!("tcp://{address}"), ..instance.clone() };
    let drain = json!({ "grit_runner_drain": { "m1": {
        "instance_id": instance.id,
        "runner_manager": manager.runner_manager(),
        "timeouts": { "delete": "20s" },
    } } });
    let workspace = Workspace::new(&["grit"]).unwrap();
    workspace.write("main.tf.json", &lab.configuration(&drain)).unwrap();
    workspace.apply().unwrap().succeeded();

    let failed = workspace.destroy().unwrap().failed();
    let errors = failed.errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].1.contains("the response has no status"), "{errors:?}");
    assert!(errors[0].1.ends_with("Code: wrapper_error"), "{errors:?}");
    assert_eq!(workspace.state().unwrap().at("grit_runner_drain.m1").len(), 1, "the drain is kept");
    assert!(wrapper.drains.load(Ordering::Relaxed) > 0);
    assert_eq!(wrapper.upstream_shutdowns.load(Ordering::Relaxed), 0);
}
