//! An HTTP receiver for tests: takes any request, keeps it, and answers as it is told.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub headers: HeaderMap,
    pub body: String,
}

/// An HTTP receiver that answers as it is told and keeps every call.
pub struct Receiver {
    pub port: u16,
    calls: Arc<Mutex<Vec<Call>>>,
    answer: Arc<Mutex<StatusCode>>,
}

type Kept = (Arc<Mutex<Vec<Call>>>, Arc<Mutex<StatusCode>>);

impl Receiver {
    /// Port 0: any that is free.
    pub async fn listen(port: u16) -> Receiver {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("the port is free");
        let port = listener.local_addr().unwrap().port();
        let (calls, answer): Kept = (Arc::default(), Arc::new(Mutex::new(StatusCode::NO_CONTENT)));
        async fn take(
            State((calls, answer)): State<Kept>,
            headers: HeaderMap,
            body: Bytes,
        ) -> (StatusCode, HeaderMap) {
            let body = String::from_utf8(body.to_vec()).unwrap();
            calls.lock().unwrap().push(Call { headers, body });
            let mut head = HeaderMap::new();
            head.insert("location", "/elsewhere".parse().unwrap());
            (*answer.lock().unwrap(), head)
        }
        let app = axum::Router::new()
            .fallback(take)
            .with_state((calls.clone(), answer.clone()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Receiver { port, calls, answer }
    }

    /// What it answers from now on.
    pub fn set(&self, status: StatusCode) {
        *self.answer.lock().unwrap() = status;
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}
