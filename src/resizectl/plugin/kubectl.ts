import { execa } from 'execa';
import { UsageError } from '../output/index.ts';

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

/** Most of the output of one command, in characters. */
const LONGEST_OUTPUT = 64 * 1024 * 1024;
const REQUEST_TIMEOUT = '30s';

/**
 * Runs kubectl, which knows the cluster, the user's credentials and proxies: a plugin runs next to it. Says what it waits for after 5 s.
 */
export class Kubectl {
  readonly #flags: readonly string[];
  readonly #waiting: <Result>(what: string, work: Promise<Result>) => Promise<Result>;

  constructor(
    { context, kubeconfig }: KubectlOptions,
    waiting: <Result>(what: string, work: Promise<Result>) => Promise<Result>,
  ) {
    this.#flags = [
      ...(context === undefined ? [] : [`--context=${context}`]),
      ...(kubeconfig === undefined ? [] : [`--kubeconfig=${kubeconfig}`]),
    ];
    this.#waiting = waiting;
  }

  /** Returns objects as JSON. Rejects with UsageError and kubectl's own message. */
  async get(...args: readonly string[]): Promise<unknown> {
    const { code, out, err } = await this.#run([
      'get',
      ...args,
      '--output=json',
      `--request-timeout=${REQUEST_TIMEOUT}`,
    ]);
    if (code !== 0) throw new UsageError(`kubectl get ${args.join(' ')}: ${messageIn(err)}`);
    return JSON.parse(out);
  }

  /** Runs a command in a container. Returns its exit code; kubectl's own failure has the exit code 1. */
  exec(
    pod: { readonly namespace: string; readonly name: string },
    container: string,
    command: readonly string[],
  ): Promise<Ended> {
    const where = [`--namespace=${pod.namespace}`, pod.name, `--container=${container}`];
    return this.#run(['exec', ...where, '--', ...command]);
  }

  async #run(args: readonly string[]): Promise<Ended> {
    const all = [...this.#flags, ...args];
    const options = { reject: false, stdin: 'ignore', stripFinalNewline: false, maxBuffer: LONGEST_OUTPUT } as const;
    const result = await this.#waiting(`kubectl ${args.slice(0, 3).join(' ')}`, execa('kubectl', all, options));
    if (result.exitCode === undefined)
      throw new UsageError(`kubectl cannot be run: ${result.shortMessage ?? 'no exit code'}`);
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
