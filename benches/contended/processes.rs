//! Parties in processes of their own: this bench once more, with the party as its arguments.
//!
//! A child says when it is connected, begins when it is told to, and prints what its tasks went through, a line for each.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::contenders::Contender;
use crate::turns::{Party, Turns};

const CHILD: &str = "--child";

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

/// As a line: the wait that was cut, if there is one, or `-`, then the others, in microseconds.
impl Turns {
    fn to_line(&self) -> String {
        let cut = self.cut.map_or("-".to_owned(), |cut| cut.as_micros().to_string());
        self.waits.iter().fold(cut, |line, wait| format!("{line} {}", wait.as_micros()))
    }

    fn from_line(line: &str) -> Turns {
        let mut words = line.split(' ').map(|word| word.parse().ok().map(Duration::from_micros));
        let cut = words.next().unwrap();
        Turns { cut, waits: words.map(Option::unwrap).collect() }
    }
}
