//! A link to a server that can fail, at a time or at one certain command.
//!
//! Our own, though `redis-server-wrapper` has a fault proxy. After one `reset_peer` that one (0.5.0) resets every new
//! connection too, since the receivers it hands out have never seen the reset; it can't drop what it holds back; and its
//! faults come at a time or after a number of bytes, while to lose exactly the second renewal, or the reply to exactly
//! the first try, the fault must be tied to a command. This one knows nothing of the protocol either: it looks for a
//! text in what a client sends. A command is one write of the client and far smaller than a packet, so it isn't cut in
//! two here.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backstage::on_backstage;
use crate::eventually::soon;
use crate::server::Server;

/// What can be held back or slowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Requests,
    Replies,
}

/// What happens to the command that trips the wire, and to its connection.
#[derive(Clone, Copy, Debug)]
pub enum Trip {
    /// The server gets the command; its reply is lost, and the connection is closed after this time of silence. TCP loses
    /// no part of a stream, so a lost reply is always a lost connection too.
    LoseReply(Duration),
    /// The server never gets the command; the connection is reset at once.
    Reset,
    /// The server never gets the command, and nobody is told: the connection stays open and silent.
    Silence,
    /// The server gets the command this much later, and what is sent behind it, as where packets are lost.
    Late(Duration),
    /// The server gets the command, and its reply comes this much later, and what is answered behind it.
    LateReply(Duration),
}

/// A proxy before a server, which passes everything on until told otherwise.
pub struct Proxy {
    address: SocketAddr,
    url: String,
    link: Arc<Link>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Link {
    server: Mutex<String>,
    state: watch::Sender<State>,
    wire: Mutex<Option<Wire>>,
    tripped: watch::Sender<u32>,
    connections: AtomicU64,
    /// The links of those who say something in what they send first.
    split_off: Mutex<Vec<(String, Arc<Link>)>>,
}

#[derive(Clone, Default)]
struct State {
    requests: Passage,
    replies: Passage,
    /// Connections made before the last reset are reset.
    resets: u64,
}

#[derive(Clone, Default)]
struct Passage {
    held: bool,
    delay: Duration,
}

struct Wire {
    text: String,
    to_pass: u32,
    trip: Trip,
}

impl Proxy {
    pub async fn start(server: &Server) -> Self {
        Self::start_on(0, server).await
    }

    /// The same on a port that was chosen before.
    pub(crate) async fn start_on(port: u16, server: &Server) -> Self {
        let mut proxy = Self::start_before(server.address(), port).await;
        proxy.url = server.url_at(&proxy.address());
        proxy
    }

    /// The same before any other address.
    pub(crate) async fn start_before(server: String, port: u16) -> Self {
        let link = Arc::new(Link::to(server));
        let (address, acceptor) = listen(([127, 0, 0, 1], port).into(), link.clone()).await;
        Self { address, url: format!("redis://{address}"), link, acceptor: Mutex::new(Some(acceptor)) }
    }

    /// Makes a link of its own, at the same address, of the connections to come that have `text` in what they send first, e.g. the
    /// name of a user. It fails for itself, but for [`Self::refuse`], which is up to this one.
    pub fn split(&self, text: &str) -> Self {
        let link = Arc::new(Link::to(self.link.server.lock().unwrap().clone()));
        self.link.split_off.lock().unwrap().push((text.to_owned(), link.clone()));
        Self { address: self.address, url: self.url.clone(), link, acceptor: Mutex::default() }
    }

    /// Where it listens: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The server's URL over this link.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Leads new connections to another server, as a name does after a failover. Those there are stay where they are.
    pub fn lead_to(&self, server: &Server) {
        *self.link.server.lock().unwrap() = server.address();
    }

    /// Black hole: nothing passes any more in either direction, on the connections there are and on new ones, and nobody
    /// is told. What was sent meanwhile arrives after [`Self::pass`].
    pub fn blackhole(&self) {
        self.hold(Way::Requests);
        self.hold(Way::Replies);
    }

    /// Holds back what goes one way.
    pub fn hold(&self, way: Way) {
        self.link.state.send_modify(|state| state.passage_mut(way).held = true);
    }

    /// What goes one way takes this much longer.
    pub fn delay(&self, way: Way, time: Duration) {
        self.link.state.send_modify(|state| state.passage_mut(way).delay = time);
    }

    /// Lets everything pass again at once, what was held back included.
    pub fn pass(&self) {
        self.link.state.send_modify(|state| *state = State { resets: state.resets, ..State::default() });
    }

    /// Closes the connections there are with a reset, and drops what is held back on them. After `hold(Way::Replies)`,
    /// the server did what it was asked and the client never hears of it. New connections are not touched.
    pub fn reset(&self) {
        self.link.state.send_modify(|state| state.resets += 1);
    }

    /// Refuses connections and resets those there are, until [`Self::accept`].
    pub async fn refuse(&self) {
        let acceptor = self.acceptor.lock().unwrap().take();
        if let Some(acceptor) = acceptor {
            acceptor.abort();
            // The listener is closed when its task has ended.
            let _ = acceptor.await;
        }
        self.reset();
    }

    pub async fn accept(&self) {
        let (_, acceptor) = listen(self.address, self.link.clone()).await;
        *self.acceptor.lock().unwrap() = Some(acceptor);
    }

    /// Lets `to_pass` commands that contain `text` (in any case of letters) pass, and trips at the next one, once.
    pub fn arm(&self, text: &str, to_pass: u32, trip: Trip) {
        *self.link.wire.lock().unwrap() = Some(Wire { text: text.to_lowercase(), to_pass, trip });
    }

    /// Waits until the wire has been tripped `times` since the start; with [`Trip::LoseReply`], until the server has
    /// answered.
    pub async fn tripped(&self, times: u32) {
        let mut tripped = self.link.tripped.subscribe();
        soon("the command that trips the wire", tripped.wait_for(|n| *n >= times)).await.unwrap();
    }

    /// Connections that were made over this link so far.
    pub fn connections(&self) -> u64 {
        self.link.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(acceptor) = self.acceptor.lock().unwrap().take() {
            acceptor.abort();
        }
        self.reset();
    }
}

impl State {
    fn passage(&self, way: Way) -> &Passage {
        match way {
            Way::Requests => &self.requests,
            Way::Replies => &self.replies,
        }
    }

    fn passage_mut(&mut self, way: Way) -> &mut Passage {
        match way {
            Way::Requests => &mut self.requests,
            Way::Replies => &mut self.replies,
        }
    }
}

async fn listen(address: SocketAddr, link: Arc<Link>) -> (SocketAddr, JoinHandle<()>) {
    on_backstage(async move {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let resets = link.resets();
                let link = link.clone();
                tokio::spawn(async move {
                    // An error is the end of this connection, for both sides.
                    match link.other(&client).await {
                        Some(other) => other.serve(client, other.resets()).await,
                        None => link.serve(client, resets).await,
                    }
                });
            }
        });
        (address, acceptor)
    })
    .await
}

/// Why a connection comes to its end.
enum End {
    Closed,
    Reset,
    Tripped(Trip, Vec<u8>),
}

impl Link {
    fn to(server: String) -> Link {
        Link {
            server: Mutex::new(server),
            state: watch::Sender::default(),
            wire: Mutex::default(),
            tripped: watch::Sender::default(),
            connections: AtomicU64::default(),
            split_off: Mutex::default(),
        }
    }

    fn resets(&self) -> u64 {
        self.state.borrow().resets
    }

    /// The link that was split off, if this connection belongs to it. Before Redis it is the client that speaks first.
    async fn other(&self, client: &TcpStream) -> Option<Arc<Link>> {
        if self.split_off.lock().unwrap().is_empty() {
            return None;
        }
        let mut first = [0; 256];
        let length = client.peek(&mut first).await.unwrap_or(0);
        let said = String::from_utf8_lossy(&first[..length]);
        let split_off = self.split_off.lock().unwrap();
        split_off.iter().find(|(text, _)| said.contains(text)).map(|(_, link)| link.clone())
    }

    async fn serve(&self, mut client: TcpStream, resets: u64) -> std::io::Result<()> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let address = self.server.lock().unwrap().clone();
        let mut server = TcpStream::connect(address).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let end = self.pass_on(&mut client, &mut server, resets).await?;
        match end {
            End::Closed => Ok(()),
            End::Reset => client.set_zero_linger(),
            End::Tripped(trip, command) => self.fail(trip, &command, client, server).await,
        }
    }

    /// Passes bytes on both ways until one side closes, the link is reset, or the wire trips.
    async fn pass_on(&self, client: &mut TcpStream, server: &mut TcpStream, resets: u64) -> std::io::Result<End> {
        let (mut state, late) = (self.state.subscribe(), Mutex::default());
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            _ = state.wait_for(|state| state.resets > resets) => Ok(End::Reset),
            end = self.pump(Way::Requests, from_client, to_server, resets, &late) => end,
            end = self.pump(Way::Replies, from_server, to_client, resets, &late) => end,
        }
    }

    /// `late` is how much later the next reply is to come.
    async fn pump<R, W>(
        &self,
        way: Way,
        mut from: R,
        mut to: W,
        resets: u64,
        late: &Mutex<Duration>,
    ) -> std::io::Result<End>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            let data = &buffer[..length];
            if data.is_empty() {
                return Ok(End::Closed);
            }
            let mut delay = self.state.borrow().passage(way).delay;
            if way == Way::Replies {
                delay += std::mem::take(&mut *late.lock().unwrap());
            } else if let Some(trip) = self.trips(data) {
                match trip {
                    Trip::Late(time) => delay += time,
                    Trip::LateReply(time) => *late.lock().unwrap() = time,
                    trip => return Ok(End::Tripped(trip, data.to_vec())),
                }
                self.tripped.send_modify(|times| *times += 1);
            }
            if !delay.is_zero() {
                // The delay is the fault that the test asked for.
                tokio::time::sleep(delay).await;
            }
            if self.is_reset_before_it_passes(way, resets).await {
                return Ok(End::Reset);
            }
            to.write_all(data).await?;
        }
    }

    /// Waits as long as this way is held; says whether what was held is to be dropped. Both are read at once, so that
    /// nothing slips through when a reset is followed by the end of the hold.
    async fn is_reset_before_it_passes(&self, way: Way, resets: u64) -> bool {
        let mut state = self.state.subscribe();
        let passes = state.wait_for(|state| state.resets > resets || !state.passage(way).held).await;
        // An error says that the link is gone.
        passes.map_or(true, |state| state.resets > resets)
    }

    fn trips(&self, data: &[u8]) -> Option<Trip> {
        let mut armed = self.wire.lock().unwrap();
        let wire = armed.as_mut()?;
        if !String::from_utf8_lossy(data).to_lowercase().contains(&wire.text) {
            return None;
        }
        if wire.to_pass > 0 {
            wire.to_pass -= 1;
            return None;
        }
        armed.take().map(|wire| wire.trip)
    }

    async fn fail(
        &self,
        trip: Trip,
        command: &[u8],
        mut client: TcpStream,
        mut server: TcpStream,
    ) -> std::io::Result<()> {
        match trip {
            Trip::LoseReply(silence) => {
                server.write_all(command).await?;
                let _lost = server.read(&mut [0; 1024]).await?;
                self.tripped.send_modify(|times| *times += 1);
                // The silence is the fault that the test asked for.
                tokio::time::sleep(silence).await;
            }
            Trip::Reset => {
                self.tripped.send_modify(|times| *times += 1);
                client.set_zero_linger()?;
            }
            // Not the end of the connection.
            Trip::Late(_) | Trip::LateReply(_) => {}
            Trip::Silence => {
                self.tripped.send_modify(|times| *times += 1);
                while client.read(&mut [0; 1024]).await? > 0 {}
            }
        }
        Ok(())
    }
}
