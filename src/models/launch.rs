//! The command line of an engine, printed so that a shell takes it as it is. Owns quoting; what stands in the line is the
//! engine's answer.

use super::LaunchArgs;
use warmpath_core::engine::{LaunchAsk, LaunchLine, Version};

/// Prints the line.
pub fn run(args: &LaunchArgs) -> Result<(), String> {
    let line = line(args)?;
    if let Some((name, text)) = &line.file {
        println!("cat > {name} <<'EOF'\n{text}EOF");
    }
    println!("{}", shown(args, &line));
    Ok(())
}

fn line(args: &LaunchArgs) -> Result<LaunchLine, String> {
    let version = Version::read(&args.version).ok_or_else(|| {
        format!("--version {}: write it as the engine does, for example 0.32.0", args.version)
    })?;
    let folder = args.snapshot.trim_end_matches('/').rsplit('/').next();
    let ask = LaunchAsk {
        version,
        role: args.role.of_core(),
        model: &args.model,
        snapshot: &args.snapshot,
        revision: args.revision.as_deref().or(folder),
        seed: &args.seed,
        block_size: args.block_size.unwrap_or(args.engine.rule_block_size().tokens() as u64),
        port: args.port,
        event_port: args.event_port,
        replay_port: args.replay_port,
        host: &args.host,
    };
    let mut line = args.engine.launch(&ask).map_err(|fault| fault.to_string())?;
    line.argv.extend(args.more.iter().cloned());
    Ok(line)
}

fn shown(args: &LaunchArgs, line: &LaunchLine) -> String {
    let pairs = line.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let argv: Vec<String> = line.argv.iter().map(|part| quoted(part)).collect();
    let Some(image) = &args.image else {
        return pairs.chain(argv).collect::<Vec<_>>().join(" ");
    };
    let mut docker: Vec<String> = ["docker", "run", "-d", "--gpus", "all", "--ipc=host", "--network", "host"]
        .map(str::to_string)
        .to_vec();
    docker.push(format!("--name {}", args.engine.name()));
    docker.extend(pairs.map(|pair| format!("-e {pair}")));
    docker.push(format!("-v {0}:{0}:ro", quoted(&args.snapshot)));
    if let Some((name, _)) = &line.file {
        docker.push(format!("-v \"$PWD/{name}\":/{name}:ro -w /"));
    }
    docker.push(format!("--entrypoint {}", argv.first().cloned().unwrap_or_default()));
    docker.push(quoted(image));
    docker.extend(argv.into_iter().skip(1));
    docker.join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
