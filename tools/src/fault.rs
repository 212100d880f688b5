//! Faults as text: `COMMAND[:NTH]=EFFECT`.

use std::time::Duration;

use nvme_kv_command_set::{Opcode, Status};
use nvme_kv_emulator::{Effect, Fault, Trigger};

/// Reads a fault.
pub(crate) fn parse(text: &str) -> Result<Fault, String> {
    let (on, effect) =
        text.split_once('=').ok_or_else(|| "give COMMAND[:NTH]=EFFECT".to_string())?;
    let (command, nth) = match on.split_once(':') {
        None => (on, 1),
        Some((command, nth)) => (command, number(nth, "NTH")?),
    };
    let kind = match command {
        "any" => None,
        "store" => Some(Opcode::Store),
        "retrieve" => Some(Opcode::Retrieve),
        "list" => Some(Opcode::List),
        "delete" => Some(Opcode::Delete),
        "exist" => Some(Opcode::Exist),
        _ => {
            return Err(format!(
                "command \"{command}\" is unknown; give any, store, retrieve, list, delete or exist"
            ));
        }
    };
    Ok(Fault { on: Trigger { kind, nth, key: None }, effect: effect_of(effect)? })
}

fn effect_of(text: &str) -> Result<Effect, String> {
    let parts: Vec<&str> = text.split(':').collect();
    Ok(match parts[..] {
        ["status", sct, sc] => {
            Effect::Status(Status::new(hex(sct, "SCT", 7)?, hex(sc, "SC", 255)?))
        }
        ["delay", time] => Effect::Delay(Duration::from_millis(number(time, "MILLISECONDS")?)),
        ["no-answer"] => Effect::NotExecutedNoAnswer,
        ["lost"] => Effect::ExecutedNoAnswer,
        ["late", after] => Effect::LateNoAnswer { after: number(after, "COMMANDS")? },
        ["length", length] => Effect::WrongLength(number(length, "DWORD0")?),
        ["damage", offset, xor] => {
            Effect::Damage { offset: number(offset, "OFFSET")?, xor: number(xor, "XOR")? }
        }
        _ => {
            return Err(format!(
                "effect \"{text}\" is unknown; give status:SCT:SC, delay:MILLISECONDS, no-answer, \
                 lost, late:COMMANDS, length:DWORD0 or damage:OFFSET:XOR"
            ));
        }
    })
}

fn number<T: std::str::FromStr>(text: &str, name: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} cannot be \"{text}\"; give a decimal number in range"))
}

fn hex(text: &str, name: &str, max: u8) -> Result<u8, String> {
    u8::from_str_radix(text, 16).ok().filter(|value| *value <= max).ok_or_else(|| {
        format!("{name} cannot be \"{text}\"; give a hexadecimal number up to {max:x}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_command_position_and_effect() {
        let fault = parse("store:3=status:2:81").unwrap();
        assert_eq!(fault.on, Trigger { kind: Some(Opcode::Store), nth: 3, key: None });
        assert_eq!(fault.effect, Effect::Status(Status::UNRECOVERED_READ));
        assert_eq!(parse("any=late:7").unwrap().effect, Effect::LateNoAnswer { after: 7 });
        assert_eq!(
            parse("retrieve=damage:5:255").unwrap().effect,
            Effect::Damage { offset: 5, xor: 255 }
        );
    }

    #[test]
    fn a_fault_that_is_none_is_refused_with_what_would_be_one() {
        assert!(parse("store").unwrap_err().contains("COMMAND[:NTH]=EFFECT"));
        assert!(parse("stor=lost").unwrap_err().contains("retrieve"));
        assert!(parse("store:x=lost").unwrap_err().contains("NTH"));
        assert!(parse("store=status:8:0").unwrap_err().contains("SCT"));
        assert!(parse("store=damage:0:256").unwrap_err().contains("XOR"));
        assert!(parse("store=gone").unwrap_err().contains("no-answer"));
    }
}
