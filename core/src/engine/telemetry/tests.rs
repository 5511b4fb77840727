//! Pages of the engines: vLLM's captured from a real server, the others' as their releases write them.

use super::*;
use crate::engine::Engine;

fn read(engine: Engine, page: &str) -> Option<Load> {
    engine.telemetry().expect("telemetry").read(page.as_bytes())
}

#[test]
fn vllm_captured() {
    // Of a server, 0.32.0 for CPUs; the info's other labels are left out but for two that resemble.
    let page = "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
        # TYPE vllm:num_requests_running gauge\n\
        vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 1.0\n\
        vllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0\n\
        vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tiny\"} 3.051757812e-05\n\
        vllm:cache_config_info{num_cpu_blocks=\"None\",num_gpu_blocks=\"32768\",num_gpu_blocks_override=\"None\"} 1.0\n";
    let load = Load { running: 1, waiting: 0, kv_use_permille: Some(0), capacity_blocks: Some(32_768) };
    assert_eq!(read(Engine::Vllm, page), Some(load));
}

#[test]
fn vllm_ranks_add_up() {
    let page = "vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_running{engine=\"1\"} 4.0\n\
        vllm:num_requests_waiting{engine=\"0\"} 0.0\nvllm:num_requests_waiting{engine=\"1\"} 9.0\n\
        vllm:num_requests_waiting_by_reason{engine=\"1\",reason=\"capacity\"} 7.0\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.752\n\
        vllm:cache_config_info{engine=\"0\",num_gpu_blocks=\"100\"} 1.0\n\
        vllm:cache_config_info{engine=\"1\",num_gpu_blocks=\"100\"} 1.0\n";
    let load = Load { running: 7, waiting: 9, kv_use_permille: Some(501), capacity_blocks: Some(200) };
    assert_eq!(read(Engine::Vllm, page), Some(load));
    let not_known_yet = page.replace("\"100\"", "\"None\"").replace("0.25", "NaN").replace("0.752", "-1");
    let load = Load { kv_use_permille: None, capacity_blocks: None, ..load };
    assert_eq!(read(Engine::Vllm, &not_known_yet), Some(load));
}

#[test]
fn sglang_counts_pages() {
    let page = "sglang:num_running_reqs{model_name=\"m\"} 2\nsglang:num_queue_reqs{model_name=\"m\"} 5\n\
        sglang:token_usage{model_name=\"m\"} 1.7\nsglang:max_total_num_tokens{model_name=\"m\"} 6400\n\
        sglang:page_size{model_name=\"m\"} 64\n";
    let load = Load { running: 2, waiting: 5, kv_use_permille: Some(1000), capacity_blocks: Some(100) };
    assert_eq!(read(Engine::Sglang, page), Some(load));
}

#[test]
fn llamacpp_tells_its_slots() {
    let page = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n";
    let load = Load { running: 1, waiting: 2, ..Load::default() };
    assert_eq!(read(Engine::Llamacpp, page), Some(load));
}

#[test]
fn trtllm_tells_iterations() {
    let page = r#"[{"numActiveRequests":9,"numQueuedRequests":9},{"iter":5,"numActiveRequests":1,"numQueuedRequests":4,
        "kvCacheStats":{"maxNumBlocks":200,"usedNumBlocks":50,"freeNumBlocks":150}}]"#;
    let load = Load { running: 1, waiting: 4, kv_use_permille: Some(250), capacity_blocks: Some(200) };
    assert_eq!(read(Engine::Trtllm, page), Some(load));
    assert_eq!(read(Engine::Trtllm, "[]"), Some(Load::default()));
    let empty = page.replace("200", "0");
    assert_eq!(read(Engine::Trtllm, &empty).and_then(|load| load.kv_use_permille), None);
}

#[test]
fn other_pages_are_no_load() {
    for engine in Engine::ALL {
        for page in
            ["", "{}", "<html>", "process_cpu_seconds_total 1\n", "[1]", "vllm:num_requests_running 1\n"]
        {
            assert_eq!(read(*engine, page), None, "{engine:?} {page}");
        }
    }
}

#[test]
fn lookups_of_all_ranks_are_added_and_other_names_are_not() {
    let telemetry = Engine::Vllm.telemetry().expect("telemetry");
    let page = |hits: &str| {
        format!(
            "vllm:prefix_cache_queries_total{{engine=\"0\",m=\"b c\"}} 1.5e+03\n\
             vllm:prefix_cache_queries_total{{engine=\"1\"}} 7.0\nvllm:prefix_cache_queries_total_more{{}} 5\n\
             vllm:prefix_cache_hits_total {hits}\n"
        )
    };
    assert_eq!(telemetry.lookups(page("3").as_bytes()), Some([1507, 3]));
    for odd in ["nan", "-1", "0.5", "inf"] {
        assert_eq!(telemetry.lookups(page(odd).as_bytes()), None, "{odd}");
    }
    assert_eq!(telemetry.lookups(b"vllm:prefix_cache_queries_total 3\n"), None);
    assert!(!Engine::Sglang.telemetry().expect("telemetry").tells_lookups());
}
