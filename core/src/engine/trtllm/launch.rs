//! How TensorRT-LLM is started so that it can be trusted (1.2.1 and 1.3 previews). Owns its arguments and options.

use super::BLOCK;
use crate::engine::launch::{self, LaunchAsk, LaunchFault, LaunchLine, LaunchRole};
use crate::engine::{Engine, Version};

/// The oldest whose drain was looked at.
const FLOOR: Version = Version::new(1, 2, 1);

/// Without reuse nothing is cached; without a buffer nothing is told of it.
const OPTIONS: &str = "kv_cache_config:\n  enable_block_reuse: true\n  event_buffer_max_size: 65536\nreturn_perf_metrics: true\n";

/// The line of a single pool.
pub(super) fn line(ask: &LaunchAsk<'_>) -> Result<LaunchLine, LaunchFault> {
    launch::since(Engine::Trtllm, ask.version, FLOOR)?;
    if ask.role != LaunchRole::Single {
        return Err(LaunchFault::Role { engine: Engine::Trtllm, role: ask.role });
    }
    let only = BLOCK.tokens() as u64;
    if ask.block_size != only {
        return Err(LaunchFault::BlockSize { engine: Engine::Trtllm, asked: ask.block_size, only });
    }
    let mut line = LaunchLine { file: Some(("kv.yaml", OPTIONS.into())), ..LaunchLine::default() };
    line.env("HF_HUB_OFFLINE", "1");
    let port = ask.port.to_string();
    line.args(["trtllm-serve", ask.snapshot, "--served_model_name", ask.model, "--host", "0.0.0.0"]);
    line.args(["--port", &port, "--backend", "pytorch", "--extra_llm_api_options", "kv.yaml"]);
    Ok(line)
}
