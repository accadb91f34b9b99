import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Spec } from '../conformance/results/results.ts';
import { runToEnd } from './process.ts';
import type { Witness, WitnessRun } from './witness.ts';

/**
 * The cases of grpc-go's interop client that need neither TLS nor credentials, each on a separate connection.
 * pick_first_unary is missing, because grpc-go's servers do not report names.
 */
const calls = [
  'empty_unary',
  'large_unary',
  'client_streaming',
  'server_streaming',
  'ping_pong',
  'empty_stream',
  'timeout_on_sleeping_server',
  'cancel_after_begin',
  'cancel_after_first_response',
  'status_code_and_message',
  'special_status_message',
  'custom_metadata',
  'unimplemented_method',
  'unimplemented_service',
];
/** The server runs these one after the other. A load balancer of the client passes the reports to the case. */
const loadReports = ['orca_per_rpc', 'orca_oob'];
const reportingBalancer = '{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}';
/** Soak tests: all calls on one connection, and each call on a new connection. */
const soaks = ['rpc_soak', 'channel_soak'];

const DEADLINE_MS = 60_000;
const SOAK_DEADLINE_MS = 180_000;
const SOAK_CALLS_EACH = 10;

interface ClientCase {
  readonly name: string;
  readonly args: readonly string[];
  readonly deadlineMs: number;
}

const caseOf = (test: string, flags: readonly string[] = []): ClientCase => ({
  name: `grpc ${test}`,
  args: [`--test_case=${test}`, ...flags],
  deadlineMs: DEADLINE_MS,
});

/** A soak test with this many threads in one client. Durations are not compared. */
const soakOf = (test: string, threads: number): ClientCase => ({
  name: `grpc ${test}, ${threads} threads`,
  args: [
    `--test_case=${test}`,
    `--soak_num_threads=${threads}`,
    `--soak_iterations=${threads * SOAK_CALLS_EACH}`,
    `--soak_per_iteration_max_acceptable_latency_ms=${SOAK_DEADLINE_MS}`,
    `--soak_overall_timeout_seconds=${SOAK_DEADLINE_MS / 1000 - 30}`,
  ],
  deadlineMs: SOAK_DEADLINE_MS,
});

/** grpc-go's interop client: each case alone, and many clients at once. */
export class GrpcWitness implements Witness {
  readonly name = 'grpc';
  readonly #alone: readonly ClientCase[];
  readonly #atOnce: readonly ClientCase[];

  constructor(
    private readonly client: string,
    clients: number,
  ) {
    this.#alone = [
      ...calls.map((test) => caseOf(test)),
      ...loadReports.map((test) => caseOf(test, [`--service_config_json=${reportingBalancer}`])),
      ...soaks.flatMap((test) => [soakOf(test, 1), soakOf(test, clients)]),
    ];
    this.#atOnce = Array.from({ length: clients }, (_, index) => {
      const test = calls[index % calls.length]!;
      return { ...caseOf(test), name: `grpc ${clients} clients at once, ${index + 1}: ${test}` };
    });
  }

  /** On a quiet machine, all cases pass. */
  get leastPassedDirect(): number {
    return Math.floor((this.#alone.length + this.#atOnce.length) * 0.9);
  }

  async run({ only, ...run }: WitnessRun): Promise<Map<string, Spec>> {
    const isChosen = ({ name }: { readonly name: string }): boolean => only?.includes(name) ?? true;
    const results: Spec[] = [];
    for (const one of this.#alone.filter(isChosen)) results.push(await this.#runClient(one, run));
    // A call that fails among many concurrent clients may pass on its own, so all clients run again.
    if (this.#atOnce.some(isChosen))
      results.push(...(await Promise.all(this.#atOnce.map((one) => this.#runClient(one, run)))));
    return new Map(results.filter(isChosen).map((result) => [result.name, result]));
  }

  async #runClient({ name, args, deadlineMs }: ClientCase, { port, logs, signal }: WitnessRun): Promise<Spec> {
    const start = performance.now();
    const server = ['--server_host=127.0.0.1', `--server_port=${port}`];
    const { output, failure } = await runToEnd(this.client, [...server, ...args], deadlineMs, signal);
    await writeFile(join(logs, `${name.replaceAll(/[^\w]+/g, '-')}.log`), output);
    const seconds = (performance.now() - start) / 1000;
    if (failure === undefined) return { name, outcome: 'passed', reason: '', seconds };
    return {
      name,
      outcome: 'failed',
      reason: `${failure}\n${output.trim().split('\n').slice(-5).join('\n')}`,
      seconds,
    };
  }
}
