import { readdir, rm } from 'node:fs/promises';
import { Command, InvalidArgumentError, Option } from 'commander';
import { NodeError } from '../../../tools/download/errors.ts';
import type { CommandStdio } from './boot.ts';
import { runInNode } from './boot.ts';
import { runOnHost } from './host.ts';
import { criTools, isCached } from './parts/go-module.ts';
import type { ContainerdRelease, Init, KernelName, Runtime } from './parts/parts.ts';
import { containerdReleases, inits, kernels, runtimes } from './parts/parts.ts';
import { greetingShell } from './shell.ts';

interface Flags {
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  readonly init: Init;
  readonly kernel: KernelName;
  readonly host?: true;
  readonly shell?: true;
  readonly mem?: number;
  readonly timeout?: number;
  readonly out?: string;
}

const progress = (line: string): void => void process.stderr.write(`node: ${line}\n`);

function bytes(text: string): number {
  const match = /^(\d+)([KMG])i?$/i.exec(text);
  const power = { K: 10, M: 20, G: 30 }[(match?.[2] ?? '').toUpperCase()];
  if (match?.[1] === undefined || power === undefined)
    throw new InvalidArgumentError('write a number and M or G, such as 4G');
  return Number(match[1]) * 2 ** power;
}

function seconds(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('write a number of seconds above 0');
  return value;
}

const program = new Command('node')
  .description('Runs a command (default: a shell) in a test node: a real kernel with cgroup v2 and a real containerd.')
  .addOption(new Option('--containerd <release>', 'containerd release').choices(containerdReleases).default('2.1'))
  .addOption(new Option('--runtime <name>', 'OCI runtime').choices(runtimes).default('runc'))
  .addOption(new Option('--init <name>', 'first process of the node').choices(inits).default('plain'))
  .addOption(
    new Option('--kernel <name>', "User Mode Linux, or one of Debian's kernels in qemu")
      .choices(kernels)
      .default('uml'),
  )
  .option('--host', 'boot no node: run on the cgroup v2 and containerd of this machine')
  .option('--shell', 'start a shell on the terminal, after the command if there is one')
  .option('--mem <size>', 'memory of the node (default: 4G; 3G with --kernel debian)', bytes)
  .option('--timeout <seconds>', 'stop the command after this time, with exit code 124', seconds)
  .option('--out <folder>', 'store what the command writes to $NODE_OUT in this folder')
  .argument('[command...]', 'command to run, after --');

/** A shell alone greets with commands to try. The shim is not running then. */
const shell = greetingShell([
  'A node with containerd. Try:',
  '  ctr -n k8s.io containers ls',
  '  cri-resize-shim > /tmp/shim.log 2>&1 &',
  '  resizectl get pods',
]);

/** Returns what to run: a shell alone, the command alone, or the command and then a shell. */
function commandLine(command: readonly string[], wantShell: boolean): readonly string[] {
  if (command.length === 0) return shell;
  if (!wantShell) return command;
  return ['/bin/sh', '-c', '"$@"; echo "exit code $?"; exec /bin/sh -i', 'sh', ...command];
}

function stdioFor(interactive: boolean): CommandStdio {
  const { stdin, stdout, stderr } = process;
  if (interactive && stdin.isTTY && stdout.isTTY) return 'terminal';
  return stdin.isTTY ? { stdout, stderr } : { stdin, stdout, stderr };
}

/** Settings about colors and CI apply in the node too. */
function passedOn(): Record<string, string> {
  return Object.fromEntries(
    ['CI', 'NO_COLOR', 'FORCE_COLOR'].flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

async function main(): Promise<number> {
  program.parse();
  const flags = program.opts<Flags>();
  const command = commandLine(program.args, flags.shell === true);
  const interactive = program.args.length === 0 || flags.shell === true;
  if (flags.host) return failing(() => runOnHost(command, flags.out));
  const ending = new AbortController();
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const) {
    // Not `once`, as in endingSignal of test/runner: execa would end this process first.
    process.on(signal, () => ending.abort(code));
  }
  watchNpm(ending);
  const stdio = stdioFor(interactive);
  if (stdio === 'terminal') process.stdin.setRawMode(true);
  try {
    return await failing(() => inNode(flags, command, stdio, ending.signal));
  } catch (error) {
    if (ending.signal.aborted) return Number(ending.signal.reason);
    throw error;
  } finally {
    if (stdio === 'terminal') process.stdin.setRawMode(false);
  }
}

async function inNode(
  flags: Flags,
  command: readonly string[],
  stdio: CommandStdio,
  signal: AbortSignal,
): Promise<number> {
  const result = await runInNode({
    containerd: flags.containerd,
    runtime: flags.runtime,
    init: flags.init,
    kernel: flags.kernel,
    criTools: await isCached(criTools),
    command,
    env: passedOn(),
    stdio,
    progress,
    signal,
    ...(flags.mem !== undefined && { memoryBytes: flags.mem }),
    ...(flags.timeout !== undefined && { timeoutMs: flags.timeout * 1000 }),
    ...(flags.out !== undefined && { outDir: flags.out }),
  });
  if (result.timedOut) progress(`the command did not end within ${String(flags.timeout)} s`);
  if (flags.out === undefined) await dropOrName(result.outDir, result.exitCode);
  return result.exitCode;
}

/** Prints a failure of the node itself, and returns an exit code that no command failure has. */
async function failing(action: () => Promise<number>): Promise<number> {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    progress(error.message);
    return 70;
  }
}

/** Keeps and reports the logs of a failed command. Removes any other folder that the user did not request. */
async function dropOrName(outDir: string, exitCode: number): Promise<void> {
  if (exitCode === 0 || (await readdir(outDir)).length === 0) await rm(outDir, { recursive: true });
  else progress(`exit code ${exitCode}; the node's logs are in ${outDir}`);
}

/**
 * On a signal, npm ends its shell but not the child of the shell. The child then has another parent, and must end too.
 */
function watchNpm(ending: AbortController): void {
  if (process.env['npm_lifecycle_event'] === undefined) return;
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) ending.abort(143);
  }, 250).unref();
}

// Setting exitCode is not enough, because an open standard input would keep the process running.
process.exit(await main());
