use anyhow::{Context, bail};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, pending};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// A way to one admin port, for one question after the other.
#[derive(Debug)]
pub(crate) struct AdminConnection {
    sender: SendRequest<Empty<Bytes>>,
    authority: String,
    prefix: String,
    /// Says why there is no way any more, where the way knows.
    broken: Option<Broken>,
}

/// Resolves only when there is something to say.
type Broken = Shared<BoxFuture<'static, String>>;

/// No page of ours is longer.
const LONGEST_PAGE: usize = 64 << 20;
const LONGEST_LINE: usize = 1 << 20;

const REASON_TIMEOUT: Duration = Duration::from_millis(500);

impl AdminConnection {
    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        authority: &str,
        prefix: &str,
    ) -> anyhow::Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.context("no HTTP")?;
        // It ends with its last request, which gets the errors.
        tokio::spawn(connection);
        let (authority, prefix) = (authority.to_owned(), prefix.to_owned());
        Ok(Self { sender, authority, prefix, broken: None })
    }

    /// Sets the source of the reason why forwarding fails: a connection that just ends has none.
    pub(super) fn broken_by(
        mut self,
        why: impl Future<Output = Option<String>> + Send + 'static,
    ) -> Self {
        let said = async {
            match why.await {
                Some(why) => why,
                None => pending().await,
            }
        };
        self.broken = Some(said.boxed().shared());
        self
    }

    /// A page as text.
    pub(crate) async fn text(&mut self, path: &str) -> anyhow::Result<String> {
        let (status, text) = self.read(path).await?;
        match status {
            StatusCode::OK => Ok(text),
            _ => bail!("{path}: {status}: {}", text.trim()),
        }
    }

    /// The same, of a page that not every program has.
    pub(crate) async fn text_if_there(&mut self, path: &str) -> anyhow::Result<Option<String>> {
        let (status, text) = self.read(path).await?;
        match status {
            StatusCode::OK => Ok(Some(text)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => bail!("{path}: {status}: {}", text.trim()),
        }
    }

    /// Also of a page that says with its status what it says with its words.
    pub(crate) async fn words(&mut self, path: &str) -> anyhow::Result<String> {
        Ok(self.read(path).await?.1)
    }

    pub(crate) async fn json<T: DeserializeOwned>(&mut self, path: &str) -> anyhow::Result<T> {
        super::parsed(path, &self.text(path).await?)
    }

    pub(crate) async fn json_if_there<T: DeserializeOwned>(
        &mut self,
        path: &str,
    ) -> anyhow::Result<Option<T>> {
        let text = self.text_if_there(path).await?;
        text.map(|text| super::parsed(path, &text)).transpose()
    }

    /// A page with an object on each line, read as it comes.
    pub(crate) async fn lines<T: DeserializeOwned>(
        &mut self,
        path: &str,
    ) -> anyhow::Result<Vec<T>> {
        let (status, mut body) = self.get(path).await?;
        if status != StatusCode::OK {
            bail!("{path}: {status}: {}", whole(body).await?.trim());
        }
        let (mut values, mut rest) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame.with_context(|| path.to_owned())?;
            let Some(data) = frame.data_ref() else { continue };
            rest.extend_from_slice(data);
            let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let value = serde_json::from_slice(line);
                values.push(value.with_context(|| format!("{path} has unexpected content"))?);
            }
            rest.drain(..end);
            if rest.len() > LONGEST_LINE {
                bail!("{path}: a line is too long");
            }
        }
        if !rest.is_empty() {
            bail!("{path} ends in the middle of a line");
        }
        Ok(values)
    }

    async fn read(&mut self, path: &str) -> anyhow::Result<(StatusCode, String)> {
        let (status, body) = self.get(path).await?;
        Ok((status, whole(body).await.with_context(|| path.to_owned())?))
    }

    async fn get(&mut self, path: &str) -> anyhow::Result<(StatusCode, Incoming)> {
        let request = Request::get(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.authority)
            .body(Empty::new())
            .with_context(|| format!("{path:?} cannot be requested"))?;
        let broken = self.broken.clone();
        let answer = async {
            self.sender.ready().await.context("the connection ended")?;
            let answer = self.sender.send_request(request).await;
            let answer = answer.with_context(|| path.to_owned())?;
            anyhow::Ok((answer.status(), answer.into_body()))
        };
        let Some(broken) = broken else { return answer.await };
        let answer = tokio::select! {
            why = broken.clone() => bail!("{}", why.trim()),
            answer = answer => answer,
        };
        match answer {
            Ok(answer) => Ok(answer),
            // Why it ended is said at the same time, and says more.
            Err(ended) => match timeout(REASON_TIMEOUT, broken).await {
                Ok(why) => bail!("{}", why.trim()),
                Err(_) => Err(ended),
            },
        }
    }
}

async fn whole(mut body: Incoming) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            bytes.extend_from_slice(data);
        }
        if bytes.len() > LONGEST_PAGE {
            bail!("it is too long");
        }
    }
    String::from_utf8(bytes).context("it is not text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// A connection to one that gives this answer to the first question.
    async fn answering(status: &str, body: &str) -> AdminConnection {
        let (ours, mut theirs) = duplex(4096);
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        tokio::spawn(async move {
            let mut question = [0; 1024];
            let _ = theirs.read(&mut question).await;
            let _ = theirs.write_all(answer.as_bytes()).await;
            // Open until the other side is gone.
            let _ = theirs.read(&mut question).await;
        });
        AdminConnection::over(ours, "test", "").await.unwrap()
    }

    #[tokio::test]
    async fn a_page_that_is_not_there_says_why() {
        let mut port = answering("404 Not Found", "default/web is retired\n").await;
        let error = port.text("/snapshot/default/web").await.unwrap_err();
        let expected = "/snapshot/default/web: 404 Not Found: default/web is retired";
        assert_eq!(error.to_string(), expected);
        let mut port = answering("404 Not Found", "").await;
        assert_eq!(port.text_if_there("/acks").await.unwrap(), None);
    }
}
