//! Parties in processes of their own: this bench once more, with the party as its arguments.
//!
//! A child says when it is connected, begins when it is told to, and prints what its tasks went through, a line for each.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::runtime::Builder;

use crate::contenders::Contender;
use crate::turns::{self, Turns};

const CHILD: &str = "--child";

/// The tasks of one process, and what they are to do.
#[derive(Clone)]
pub(crate) struct Party {
    pub(crate) contender: Contender,
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) tasks: usize,
    pub(crate) length: Duration,
}

/// Runs the party in as many processes at once, and calls `ready` when all are connected.
pub(crate) fn run(processes: usize, party: &Party, ready: impl FnOnce()) -> Vec<Turns> {
    let mut children: Vec<_> = (0..processes).map(|_| spawn(party)).collect();
    let mut outputs: Vec<_> = children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        output.read_line(&mut String::new()).unwrap();
    }
    ready();
    for child in &mut children {
        child.stdin.as_ref().unwrap().write_all(b"go\n").unwrap();
    }
    let mut all = Vec::new();
    for (mut child, mut output) in children.into_iter().zip(outputs) {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        all.extend(text.lines().map(Turns::from_line));
    }
    all
}

fn spawn(party: &Party) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(CHILD).args(party.to_arguments());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// What a child does. Without its parent it doesn't begin.
pub(crate) fn child(party: &Party) {
    let turns = party.run(|| {
        println!("connected");
        let told = std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        assert!(told > 0, "the parent is gone");
    });
    for turns in turns {
        println!("{}", turns.to_line());
    }
}

impl Party {
    /// Connects, calls `ready`, and lets the tasks run.
    fn run(&self, ready: impl FnOnce()) -> Vec<Turns> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let lock = self.contender.connect(&self.url).await;
            ready();
            turns::all_turns(lock, &self.key, self.tasks, self.length).await
        })
    }

    /// The party of a child; `None` in the parent.
    pub(crate) fn from_arguments(arguments: &[String]) -> Option<Party> {
        let [_, flag, contender, url, key, tasks, millis] = arguments else { return None };
        if flag != CHILD {
            return None;
        }
        let contender = Contender::ALL.into_iter().find(|known| known.name() == contender).unwrap();
        let (tasks, length) = (tasks.parse().unwrap(), Duration::from_millis(millis.parse().unwrap()));
        Some(Party { contender, url: url.clone(), key: key.clone(), tasks, length })
    }

    fn to_arguments(&self) -> [String; 5] {
        let (tasks, millis) = (self.tasks.to_string(), self.length.as_millis().to_string());
        [self.contender.name().to_owned(), self.url.clone(), self.key.clone(), tasks, millis]
    }
}
