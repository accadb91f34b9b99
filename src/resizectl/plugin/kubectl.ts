import { execa } from 'execa';
import { MiB } from '../../core/index.ts';
import { UsageError } from '../output/failure.ts';

/** Which cluster kubectl uses. */
export interface KubectlOptions {
  readonly context?: string;
  readonly kubeconfig?: string;
}

export interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Maximum output of one command, in characters. */
const LONGEST_OUTPUT = 64 * MiB;
const REQUEST_TIMEOUT = '30s';
/** Maximum time of a command on a node: doctor takes a few seconds, and a hanging node never answers. */
const EXEC_MS = 60_000;

/** Runs kubectl, which knows the cluster, user credentials and proxies, next to a plugin. Reports waits at 5 s. */
export class Kubectl {
  readonly #flags: readonly string[];
  readonly #execMs: number;

  /** @param execMs the longest time of {@link exec}, in milliseconds */
  constructor(
    { context, kubeconfig }: KubectlOptions,
    private readonly waiting: <Result>(what: string, work: Promise<Result>) => Promise<Result>,
    execMs = EXEC_MS,
  ) {
    this.#execMs = execMs;
    this.#flags = [
      ...(context === undefined ? [] : [`--context=${context}`]),
      ...(kubeconfig === undefined ? [] : [`--kubeconfig=${kubeconfig}`]),
    ];
  }

  /** Returns objects as JSON. Rejects with kubectl's own message; with UsageError if there is no such object. */
  async get(...args: readonly string[]): Promise<unknown> {
    const flags = ['--output=json', `--request-timeout=${REQUEST_TIMEOUT}`];
    const { code, out, err } = await this.#run(['get', ...args, ...flags]);
    if (code === 0) return JSON.parse(out);
    const message = `kubectl get ${args.join(' ')}: ${messageIn(err)}`;
    throw /\bnot found$/.test(message) ? new UsageError(message) : new Error(message);
  }

  /** Runs a command in a container. Returns its exit code; 1 for a failure of kubectl itself or a timeout. */
  exec(
    pod: { readonly namespace: string; readonly name: string },
    container: string,
    command: readonly string[],
  ): Promise<Ended> {
    const where = [`--namespace=${pod.namespace}`, pod.name, `--container=${container}`];
    return this.#run(['exec', ...where, '--', ...command], this.#execMs);
  }

  async #run(args: readonly string[], timeout?: number): Promise<Ended> {
    const all = [...this.#flags, ...args];
    const options = { reject: false, stdin: 'ignore', stripFinalNewline: false, maxBuffer: LONGEST_OUTPUT } as const;
    const running = execa('kubectl', all, { ...options, ...(timeout !== undefined && { timeout }) });
    const result = await this.waiting(`kubectl ${args.slice(0, 3).join(' ')}`, running);
    if (result.timedOut) return { code: 1, out: '', err: `no answer within ${Math.ceil((timeout ?? 0) / 1000)} s\n` };
    if (result.exitCode === undefined)
      throw new Error(`kubectl cannot be run: ${result.shortMessage ?? 'no exit code'}`);
    return { code: result.exitCode, out: result.stdout, err: result.stderr };
  }
}

/** kubectl's own message, without the lines of its log before it (`E1125 03:44:38.548845 ...`). */
const messageIn = (err: string): string =>
  err
    .trim()
    .split('\n')
    .filter((line) => !/^[EWIF]\d{4} /.test(line))
    .join('; ');
