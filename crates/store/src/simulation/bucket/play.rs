//! Writers and readers on one bucket, what each does in its turn, and which answers are correct.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::network::{Client, Network};
use super::truth::{Batch, Verdict, Wish};
use crate::devices::objects::{Objects, Page};
use crate::devices::published::{Collected, Manifest, PublishedObject, Reader, Staged, WriteError, Writer};
use crate::error::{Error, ErrorKind};
use crate::format::geometry::Class;
use crate::locks::lock;

/// Number of concurrent clients; the first are writers.
const ACTORS: usize = 5;
const WRITERS: usize = 3;
/// Deepest nesting of turns.
const DEEPEST: usize = 3;
/// Number of turns in a scenario.
const TURNS: u64 = 40;

/// A client that takes turns.
#[derive(Debug)]
enum Actor {
    /// No client; the next one is a writer, or else a reader.
    Nobody,
    Writer(Author, Arc<Client>),
    Reader(Reader, Arc<Client>),
}

/// A writer, and what it has staged and not published, with the contents.
#[derive(Debug)]
struct Author {
    writer: Writer,
    staged: Vec<(Staged, Vec<u8>)>,
}

/// A scenario in progress.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) network: Mutex<Network>,
    stage: Mutex<Stage>,
    this: Weak<Play>,
}

#[derive(Debug)]
struct Stage {
    /// `None` during its turn.
    actors: Vec<Option<Actor>>,
    clients: usize,
    contents: u64,
}

/// Events in a scenario, with their counts.
type Seen = BTreeMap<&'static str, u64>;

/// Plays the scenario of a seed; returns the events, or the failure and, if `is_traced`, how it came about.
pub(super) fn play(seed: u64, is_traced: bool) -> Result<Seen, (String, Vec<String>)> {
    let stage = Stage { actors: (0..ACTORS).map(|_| Some(Actor::Nobody)).collect(), clients: 0, contents: 0 };
    let network = Mutex::new(Network::new(seed, is_traced));
    let play = Arc::new_cyclic(|this| Play { network, stage: Mutex::new(stage), this: this.clone() });
    let turns = play.network().random.below(TURNS);
    for _ in 0..turns {
        play.turn();
        if play.is_broken() {
            break;
        }
    }
    if !play.is_broken() {
        play.end();
    }
    let mut network = play.network();
    match network.broken.take() {
        Some(broken) => Err((broken, network.trace.take().unwrap_or_default())),
        None => Ok(std::mem::take(&mut network.seen)),
    }
}

impl Play {
    fn is_broken(&self) -> bool {
        self.network().broken.is_some()
    }

    fn client(&self) -> Arc<Client> {
        let mut stage = lock(&self.stage);
        stage.clients += 1;
        Arc::new(Client::new(self.this.clone(), stage.clients))
    }

    fn below(&self, end: u64) -> u64 {
        self.network().random.below(end)
    }

    fn disturbances(&self) -> u64 {
        self.network().disturbances
    }

    fn law(&self, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.network().judge(Err(words()));
        }
    }

    /// Gives another client a turn while a request is in progress.
    pub(super) fn interlude(&self) {
        let under_way = lock(&self.stage).actors.iter().filter(|actor| actor.is_none()).count();
        if under_way < DEEPEST && !self.is_broken() {
            self.network().disturbances += 1;
            self.network().say(|| "  meanwhile:".to_owned());
            self.turn();
            self.network().say(|| "  so much for that".to_owned());
        }
    }

    /// A client does a complete operation.
    fn turn(&self) {
        if self.below(30) == 0 {
            return self.rot();
        }
        let slot = self.below(ACTORS as u64) as usize;
        let Some(actor) = lock(&self.stage).actors[slot].take() else { return };
        let next = match actor {
            Actor::Nobody if slot < WRITERS => self.begin_writer(),
            Actor::Nobody => self.begin_reader(),
            Actor::Writer(writer, client) => self.write(writer, client),
            Actor::Reader(reader, client) => self.look(reader, client),
        };
        lock(&self.stage).actors[slot] = Some(next);
    }

    fn begin_writer(&self) -> Actor {
        let client = self.client();
        let is_asked = self.below(20) == 0;
        let is_new = is_asked || self.network().truth.newest().is_none();
        self.network().say(|| format!("{client:?} {}", if is_new { "creates" } else { "opens for writing" }));
        let before = self.disturbances();
        let began = match is_new {
            true => Writer::create(client.clone(), client.clone()),
            false if self.below(2) == 0 => Writer::open(client.clone(), client.clone()),
            false => match self.begin_if(&client) {
                Some(began) => began,
                None => return Actor::Nobody,
            },
        };
        self.network().say(|| format!("  {:?}", began.as_ref().map(|writer| writer.manifest().version())));
        let is_undisturbed = self.disturbances() == before;
        match began {
            Ok(_) if client.is_dead() => Actor::Nobody,
            Ok(writer) => {
                let mut network = self.network();
                let version = writer.manifest().version();
                network.truth.acknowledged = network.truth.acknowledged.max(version);
                let landed = network.truth.version(version).is_some_and(|landed| landed.manifest == *writer.manifest());
                if !landed {
                    network.judge(Err("an epoch began that did not take effect".to_owned()));
                }
                network.note("an epoch began");
                drop(network);
                Actor::Writer(Author { writer, staged: Vec::new() }, client)
            }
            Err(error) => {
                let is_refusal = is_new && error.error().kind() == ErrorKind::Exists;
                self.law(!is_undisturbed || is_refusal, || format!("opening failed for no reason: {error}"));
                let exists = self.network().truth.newest().is_some();
                self.law(!is_refusal || exists, || "a store that is not there exists".to_owned());
                Actor::Nobody
            }
        }
    }

    /// Begins an epoch with a body of its own, on a manifest that was read before; `None` if it was overtaken.
    fn begin_if(&self, client: &Arc<Client>) -> Option<Result<Writer, WriteError>> {
        let before = self.disturbances();
        let reader = match Reader::open(client.clone(), client.clone()) {
            Ok(reader) => reader,
            Err(error) => return Some(Err(error.into())),
        };
        let body = self.content();
        let asked = self.ask(client, Wish::Begin(body.clone()));
        let began = Writer::open_if(&reader, body);
        let told = match &began {
            Ok(Some(writer)) => self.network().truth.tell_done(asked, writer.manifest().version()),
            Ok(None) | Err(WriteError::Failed(_)) => self.network().truth.tell_refused(asked),
            // It began, and another one has since; or it is unknown.
            Err(WriteError::Fenced(_) | WriteError::Unsettled(_)) => Ok(()),
        };
        if !client.is_dead() {
            self.network().judge(told);
        }
        let is_overtaken = matches!(began, Ok(None));
        self.law(!is_overtaken || self.disturbances() != before, || "nobody overtook it".to_owned());
        began.transpose()
    }

    /// Bytes that nobody else writes.
    fn content(&self) -> Vec<u8> {
        let mut stage = lock(&self.stage);
        stage.contents += 1;
        let mut content = stage.contents.to_le_bytes().to_vec();
        drop(stage);
        let length = self.below(24) as usize;
        content.extend(self.network().random.bytes(length));
        content
    }

    fn write(&self, mut author: Author, client: Arc<Client>) -> Actor {
        let before = self.disturbances();
        let was_fenced = !self.is_newest(author.writer.manifest());
        if self.below(100) < self.twins() {
            self.copy(&author, &client);
        }
        let writer = &mut author.writer;
        let told = match self.below(24) {
            0..8 => self.publish(writer, &client),
            8..11 => self.publish_staged(&mut author, &client),
            11..13 => self.pin(writer, &client),
            13..15 => self.unpin(writer, &client),
            15..19 => self.collect(writer, &client),
            19..22 => self.stage(&mut author, &client),
            22 => self.abandon(&mut author, &client),
            _ => {
                self.network().say(|| format!("{client:?} ends"));
                return Actor::Nobody;
            }
        };
        match told {
            _ if client.is_dead() => return Actor::Nobody,
            Ok(()) => {}
            Err(WriteError::Fenced(_)) => {
                let is_newest = self.is_newest(author.writer.manifest());
                self.law(!is_newest, || "a writer was fenced by nobody".to_owned());
                // A client that continues tries again, and must not succeed.
                if self.below(2) == 0 {
                    return Actor::Nobody;
                }
            }
            Err(WriteError::Unsettled(_)) => {
                // It must not treat what it does not know of as garbage, nor continue from it.
                let told = match self.below(3) {
                    0 => self.collect(&mut author.writer, &client),
                    1 => self.publish_staged(&mut author, &client),
                    _ => self.publish(&mut author.writer, &client),
                };
                self.law(told.is_err(), || "a writer that has ended goes on".to_owned());
            }
            Err(error) => {
                let is_undisturbed = self.disturbances() == before;
                let is_ended = matches!(&error, WriteError::Failed(error) if error.kind() == ErrorKind::ReadOnly);
                let words = || format!("writing failed for no reason: {error}");
                self.law(!is_undisturbed || was_fenced || is_ended, words);
            }
        }
        Actor::Writer(author, client)
    }

    fn twins(&self) -> u64 {
        self.network().weather.twins
    }

    /// Copies the machine of a writer; both continue.
    fn copy(&self, author: &Author, client: &Client) {
        let twin = self.client();
        self.network().say(|| format!("{client:?} has a twin, {twin:?}"));
        let writer = author.writer.twin(twin.clone(), twin.clone());
        let twin = Actor::Writer(Author { writer, staged: author.staged.clone() }, twin);
        let mut stage = lock(&self.stage);
        let free = stage.actors[..WRITERS].iter_mut().flatten().find(|actor| matches!(actor, Actor::Nobody));
        if let Some(free) = free {
            *free = twin;
        }
    }

    fn is_newest(&self, manifest: &Manifest) -> bool {
        self.network().truth.newest().is_some_and(|newest| newest.manifest == *manifest)
    }

    /// Records the answer to a writer's request.
    fn told(&self, asked: usize, client: &Client, told: &Result<u64, WriteError>) {
        let mut network = self.network();
        network.say(|| format!("  {told:?}"));
        if client.is_dead() {
            return;
        }
        let (what, verdict): (_, Verdict) = match told {
            Ok(version) => ("acknowledged", network.truth.tell_done(asked, *version)),
            Err(WriteError::Failed(_)) => ("failed", network.truth.tell_refused(asked)),
            Err(WriteError::Fenced(_)) => ("fenced", network.truth.tell_refused(asked)),
            Err(WriteError::Unsettled(_)) => ("unsettled", Ok(())),
        };
        network.note(what);
        network.judge(verdict);
    }

    fn publish(&self, writer: &mut Writer, client: &Client) -> Result<(), WriteError> {
        let mut parts = Vec::new();
        for _ in 0..=self.below(3) {
            parts.push(self.content());
        }
        let (removed, numbers) = self.superseded(writer);
        let body = writer.manifest().body().to_vec();
        let asked = self.ask(client, Wish::Batch(Batch { added: parts.clone(), removed, body }));
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let told = writer.publish(&parts, &numbers);
        self.told(asked, client, &told);
        told.map(drop)
    }

    /// Paths of some objects that a batch replaces, sorted, and their numbers.
    fn superseded(&self, writer: &Writer) -> (Vec<String>, Vec<u64>) {
        let objects: Vec<PublishedObject> = writer.manifest().objects().cloned().collect();
        let removes = objects.len() > 8 || self.below(4) == 0;
        let removed: Vec<PublishedObject> = objects.into_iter().filter(|_| removes && self.below(3) == 0).collect();
        let mut paths: Vec<String> = removed.iter().map(PublishedObject::path).collect();
        paths.sort();
        (paths, removed.iter().map(PublishedObject::number).collect())
    }

    /// Puts an object that a later turn may publish, or nobody.
    fn stage(&self, author: &mut Author, client: &Client) -> Result<(), WriteError> {
        let content = self.content();
        let class = if self.below(2) == 0 { Class::Fast } else { Class::Slow };
        self.network().say(|| format!("{client:?} stages {content:?} as {class}"));
        let staged = author.writer.stage(class, &content)?;
        author.staged.push((staged, content));
        Ok(())
    }

    /// Publishes some of what was staged, in another order than it was, with a new body.
    fn publish_staged(&self, author: &mut Author, client: &Client) -> Result<(), WriteError> {
        let mut chosen: Vec<(Staged, Vec<u8>)> = author.staged.iter().filter(|_| self.below(3) > 0).cloned().collect();
        let (removed, numbers) = self.superseded(&author.writer);
        chosen.sort_by_key(|(staged, _)| staged.number());
        let (staged, added): (Vec<Staged>, Vec<Vec<u8>>) = chosen.into_iter().rev().unzip();
        let (added, body) = (added.into_iter().rev().collect(), self.content());
        let asked = self.ask(client, Wish::Batch(Batch { added, removed, body: body.clone() }));
        let told = author.writer.publish_staged(&staged, &numbers, body);
        self.told(asked, client, &told);
        if told.is_ok() {
            author.staged.retain(|(one, _)| !staged.contains(one));
            self.network().note("published what was staged");
        }
        told.map(drop)
    }

    fn abandon(&self, author: &mut Author, client: &Client) -> Result<(), WriteError> {
        self.network().say(|| format!("{client:?} abandons what it staged"));
        author.staged.drain(..).for_each(|(staged, _)| author.writer.abandon(&staged));
        Ok(())
    }

    fn ask(&self, client: &Client, wish: Wish) -> usize {
        let mut network = self.network();
        network.say(|| format!("{client:?} wants {wish:?}"));
        network.truth.ask(client.number, wish)
    }

    fn pin(&self, writer: &mut Writer, client: &Client) -> Result<(), WriteError> {
        let name = format!("pin {}", self.network().random.any());
        let asked = self.ask(client, Wish::Pin(name.clone()));
        let told = writer.pin(&name);
        self.told(asked, client, &told);
        told.map(drop)
    }

    fn unpin(&self, writer: &mut Writer, client: &Client) -> Result<(), WriteError> {
        let Some(name) = writer.manifest().pins().next().map(|(name, _)| name.to_owned()) else { return Ok(()) };
        let asked = self.ask(client, Wish::Unpin(name.clone()));
        let told = writer.unpin(&name).map(|was_there| {
            self.law(was_there, || format!("{name} was not there"));
            writer.manifest().version()
        });
        self.told(asked, client, &told);
        told.map(drop)
    }

    fn collect(&self, writer: &mut Writer, client: &Client) -> Result<(), WriteError> {
        self.network().say(|| format!("{client:?} collects"));
        let collected = writer.collect();
        self.network().say(|| format!("  {collected:?}"));
        if collected.as_ref().is_ok_and(|collected| collected.deleted_objects > 0) {
            self.network().note("collected");
        }
        collected.map(drop)
    }

    fn begin_reader(&self) -> Actor {
        let client = self.client();
        self.network().say(|| format!("{client:?} opens for reading"));
        let floor = self.network().truth.acknowledged;
        let before = self.disturbances();
        match Reader::open(client.clone(), client.clone()) {
            Ok(reader) => self.read(reader, client, floor),
            Err(error) => {
                let is_absent = error.kind() == ErrorKind::NotFound && floor == 0;
                let is_undisturbed = self.disturbances() == before;
                self.law(!is_undisturbed || is_absent, || format!("a reader failed for no reason: {error}"));
                self.law(error.kind() != ErrorKind::NotFound || floor == 0, || "no store was found".to_owned());
                Actor::Nobody
            }
        }
    }

    fn look(&self, mut reader: Reader, client: Arc<Client>) -> Actor {
        self.network().say(|| format!("{client:?} looks"));
        let mut floor = reader.manifest().version();
        if self.below(3) > 0 {
            let acknowledged = self.network().truth.acknowledged;
            match reader.refresh() {
                Ok(_) => floor = floor.max(acknowledged),
                Err(error) => {
                    let is_possible = ![ErrorKind::Lost, ErrorKind::NotFound].contains(&error.kind());
                    self.law(is_possible, || format!("a reader fell back: {error}"));
                }
            }
        }
        self.read(reader, client, floor)
    }

    /// Reads everything, and the content of one of the pins.
    fn read(&self, reader: Reader, client: Arc<Client>, floor: u64) -> Actor {
        if client.is_dead() {
            return Actor::Nobody;
        }
        let manifest = reader.manifest();
        let version = manifest.version();
        self.law(version >= floor, || format!("a reader sees version {version}, and {floor} was acknowledged"));
        let pinned: Vec<u64> = manifest.pins().map(|(_, version)| version).collect();
        let one = self.below(pinned.len() as u64) as usize;
        for version in pinned.get(one).copied().into_iter().chain([version]) {
            let objects: Vec<&PublishedObject> = manifest.at(version).collect();
            let paths: Vec<String> = objects.iter().map(|object| object.path()).collect();
            let is_true = self.network().truth.version(version).is_some_and(|landed| landed.paths == paths);
            self.law(is_true, || format!("a reader sees {paths:?} at version {version}"));
            for object in objects {
                let before = self.disturbances();
                let read = reader.read(object);
                if client.is_dead() {
                    return Actor::Nobody;
                }
                let is_undisturbed = self.disturbances() == before;
                let verdict = self.judge_read(object, &read, is_undisturbed);
                self.network().judge(verdict);
            }
        }
        if client.is_dead() || self.below(8) == 0 { Actor::Nobody } else { Actor::Reader(reader, client) }
    }

    fn judge_read(&self, object: &PublishedObject, read: &Result<Vec<u8>, Error>, is_undisturbed: bool) -> Verdict {
        let path = object.path();
        let mut network = self.network();
        network.note(match read {
            Ok(_) => "read",
            Err(error) if error.kind() == ErrorKind::Corrupt => "corrupt",
            Err(error) if error.kind() == ErrorKind::Lost => "lost",
            Err(error) if error.kind() == ErrorKind::NotFound => "outdated",
            Err(_) => "unread",
        });
        let truth = &network.truth;
        let (is_damaged, is_named) = (truth.damaged.contains(&path), truth.names(&path));
        let holds = match read {
            Ok(bytes) => truth.contents.get(&path) == Some(bytes),
            Err(error) => match error.kind() {
                ErrorKind::Lost => is_damaged,
                ErrorKind::NotFound => !is_named,
                _ => is_damaged || !is_undisturbed,
            },
        };
        match holds {
            true => Ok(()),
            false => Err(format!("{path} was read as {read:?}, damaged: {is_damaged}, named: {is_named}")),
        }
    }

    /// Damages or removes an object.
    fn rot(&self) {
        let mut network = self.network();
        let Some(newest) = network.truth.newest() else { return };
        let paths = newest.paths.clone();
        if paths.is_empty() {
            return;
        }
        network.disturbances += 1;
        let path = network.random.pick(&paths).clone();
        let Ok(found) = network.bucket.read(&path, 0..u64::MAX) else { return };
        let mut bytes = found.bytes;
        if bytes.is_empty() {
            // Nothing is left of it.
            return;
        }
        let at = network.random.index(bytes.len());
        let bucket = network.bucket.clone();
        _ = bucket.delete(&path);
        let how = network.random.below(4);
        match how {
            0 => {}
            1 => {
                bytes.truncate(at);
                _ = bucket.put(&path, &bytes);
            }
            2 => {
                bytes.push(0);
                _ = bucket.put(&path, &bytes);
            }
            _ => {
                bytes[at] ^= 1;
                _ = bucket.put(&path, &bytes);
            }
        }
        network.say(|| format!("{path} is damaged: {how}"));
        network.truth.damaged.insert(path);
    }

    /// The faults end: a client that opens now must complete everything, and late requests change nothing.
    fn end(&self) {
        {
            let mut network = self.network();
            network.say(|| "quiet".to_owned());
            (network.weather.faults, network.weather.interludes, network.weather.landings) = (0, 0, 0);
            network.weather.lags = false;
            network.weather.attempts = network.weather.attempts.max(3);
            network.lose_some();
        }
        if self.network().truth.newest().is_none() {
            return;
        }
        let client = self.client();
        let opened = Writer::open(client.clone(), client.clone());
        let Ok(mut writer) = opened else {
            return self.law(false, || format!("the last writer cannot open: {opened:?}"));
        };
        // The other clients may try once more.
        let actors: Vec<Actor> = lock(&self.stage).actors.iter_mut().filter_map(Option::take).collect();
        for actor in actors {
            if let Actor::Writer(mut author, client) = actor {
                let told = self.publish_staged(&mut author, &client);
                self.law(told.is_err(), || "a fenced writer has published what it staged".to_owned());
                let mut writer = author.writer;
                let told = self.publish(&mut writer, &client);
                self.law(told.is_err(), || "a fenced writer has published".to_owned());
                let told = self.collect(&mut writer, &client);
                self.law(told.is_err(), || "a fenced writer has collected".to_owned());
            }
        }
        let told = self.publish(&mut writer, &client);
        self.law(told.is_ok(), || format!("the last writer cannot publish: {told:?}"));
        while self.network().land_late() {}
        drop(writer);

        let reader = self.begin_reader();
        self.law(matches!(reader, Actor::Reader(..) | Actor::Nobody), || "no reader".to_owned());
        let client = self.client();
        let collected = Writer::open(client.clone(), client).and_then(|mut writer| writer.collect());
        let is_all = matches!(collected, Ok(Collected { left_objects: 0, foreign_objects: 0, .. }));
        self.law(is_all, || format!("the last collection: {collected:?}"));
        self.compare();
    }

    /// The bucket contains what is wanted, except for what damage removed.
    fn compare(&self) {
        let mut network = self.network();
        let (mut names, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
        while let Ok(Page { objects, is_last }) = network.bucket.list("", after.as_deref()) {
            names.extend(objects.into_iter().map(|listed| listed.name));
            if is_last {
                break;
            }
            after = names.last().cloned();
        }
        let mut wanted = network.truth.wanted();
        let damaged = network.truth.damaged.clone();
        wanted.retain(|path| names.contains(path) || !damaged.contains(path));
        if !wanted.iter().eq(&names) {
            network.judge(Err(format!("the bucket has {names:#?} instead of {wanted:#?}")));
        }
        let bucket = network.bucket.clone();
        let verdict = network.truth.whole(&bucket);
        network.judge(verdict);
    }
}
