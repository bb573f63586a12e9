//! `shardlab generate`: text from a checkpoint.

use std::collections::BTreeMap;

use serde::Serialize;

use super::args::GenerateArgs;
use super::output;
use super::{Failure, Outcome};
use crate::checkpoint::Checkpoint;
use crate::config::ConfigError;
use crate::exec::Clock;
use crate::trace::Badge;
use crate::train::TrainError;
use crate::train::generate::{Generator, Sampling};
use crate::units::Nanos;

/// Tokens of a model that reads bytes.
const BYTES: u32 = 256;

/// The object that `generate --json` prints.
#[derive(Debug, Serialize)]
struct Answer {
    prompt: String,
    /// What was written after the prompt.
    text: String,
    tokens: Vec<u32>,
    trained_steps: u64,
    seconds: f64,
    badges: BTreeMap<&'static str, Badge>,
}

/// Runs the command.
///
/// # Errors
/// If the checkpoint cannot be read, or its model does not read bytes.
pub fn run(args: &GenerateArgs) -> Result<Outcome, Failure> {
    output::listen_for_interrupts();
    if !(args.temperature.is_finite() && args.temperature >= 0.0) {
        let why = format!("{} is not a finite number of at least 0", args.temperature);
        return Err(ConfigError::value("temperature", why, "Use a number such as 0.8").into());
    }
    let checkpoint = Checkpoint::read(&args.checkpoint).map_err(TrainError::from)?;
    let (model, state) = (&checkpoint.model, &checkpoint.state);
    if model.vocab_size != BYTES {
        let why = format!(
            "the model of {} has {} tokens, and text is bytes: {BYTES} tokens",
            args.checkpoint.display(),
            model.vocab_size
        );
        let remedy = "Give a checkpoint that was trained on a text file";
        return Err(ConfigError::value("checkpoint", why, remedy).into());
    }
    let context = state.scenario.training.seq;
    let mut generator = Generator::new(model, &checkpoint.weights, context)?;
    let sampling = Sampling { temperature: args.temperature, top: args.top, seed: args.seed };
    // A text begins after a line.
    let prompt = if args.prompt.is_empty() { "\n" } else { args.prompt.as_str() };
    let mut tokens: Vec<u32> = prompt.bytes().map(u32::from).collect();
    let given = tokens.len();
    let (mut written, mut whole) = (Written::default(), String::new());
    if !args.json {
        output::print(prompt.trim_start_matches('\n'))?;
    }
    let clock = Clock::start();
    for index in 0..u64::from(args.tokens) {
        if output::interrupted() {
            break;
        }
        let token = sampling.draw(&generator.logits(&tokens)?, index);
        tokens.push(token);
        let text = written.take(token as u8);
        if !args.json {
            output::print(&text)?;
        }
        whole += &text;
    }
    let seconds = Nanos(clock.now()).as_secs();
    let drawn = tokens.split_off(given);
    if args.json {
        output::print_json(&Answer {
            prompt: args.prompt.clone(),
            text: whole + &written.rest(),
            tokens: drawn,
            trained_steps: state.step,
            seconds,
            badges: [("seconds", Badge::Measured)].into(),
        })?;
    } else {
        output::print(&(written.rest() + "\n"))?;
    }
    Ok(if output::interrupted() { Outcome::Interrupted } else { Outcome::Success })
}

/// Bytes as text while they come: a character as soon as it is whole. What is no text, or would
/// command a terminal, becomes a replacement character.
#[derive(Debug, Default)]
struct Written {
    pending: Vec<u8>,
}

impl Written {
    fn take(&mut self, byte: u8) -> String {
        self.pending.push(byte);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(whole) => {
                    text += &harmless(whole);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    let whole = String::from_utf8_lossy(&self.pending[..valid]).into_owned();
                    text += &harmless(&whole);
                    // Without a length the character may still become whole.
                    let Some(wrong) = error.error_len() else {
                        self.pending.drain(..valid);
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending.drain(..valid + wrong);
                }
            }
        }
    }

    /// What never became whole.
    fn rest(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        harmless(&rest)
    }
}

fn harmless(text: &str) -> String {
    let replaced = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> String {
        let mut written = Written::default();
        let text: String = bytes.iter().map(|byte| written.take(*byte)).collect();
        text + &written.rest()
    }

    #[test]
    fn characters_are_whole_and_never_command_a_terminal() {
        assert_eq!(written("Où,\n\t日本".as_bytes()), "Où,\n\t日本");
        assert_eq!(written(b"a\x1b[2Jb\rc"), "a\u{fffd}[2Jb\u{fffd}c");
        assert_eq!(written(b"\xff\xc3\x28\xe6\x97"), "\u{fffd}\u{fffd}(\u{fffd}");
        for bytes in [b"\xf0\x9f\x98\x80!".as_slice(), b"\xe2\x82x\xe2\x82\xac", b"\x80\x80"] {
            assert_eq!(written(bytes), String::from_utf8_lossy(bytes));
        }
    }
}
