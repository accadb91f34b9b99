import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, Option } from 'commander';
import {
  type ContainerdRelease,
  containerdReleases,
  detectHost,
  greetingShell,
  prepareNode,
  runInNode,
  runOnHost,
} from '../test/support/node/index.ts';

/** npm run demo: runs the demo on a node, and boots one if this machine cannot be used. */

interface Flags {
  readonly json?: true;
  readonly keep?: true;
  readonly containerd: ContainerdRelease;
}

const greeting = [
  'The pod and the shim keep running. Try:',
  '  resizectl get pods -o wide',
  '  resizectl resize demo writer.memory=300Mi volume.scratch=50%',
  '  resizectl describe pod demo',
];

const say = (text: string): void => void process.stderr.write(`demo: ${text}\n`);

async function main(): Promise<number> {
  const flags = new Command('demo')
    .description('Resizes a running pod and its memory-backed volume through the shim, and shows what happened.')
    .option('--json', 'print the result as one JSON object')
    .option('--keep', 'leave the pod and the shim running, at a shell on the node')
    .addOption(
      new Option('--containerd <release>', 'containerd release of the embedded node')
        .choices(containerdReleases)
        .default('2.1'),
    )
    .parse()
    .opts<Flags>();
  const inside = [process.execPath, join(dirname(fileURLToPath(import.meta.url)), 'demo-inside.js')];
  const command = [...inside, ...(flags.json ? ['--json'] : []), ...(flags.keep ? ['--keep'] : [])];
  const line = flags.keep ? greetingShell(greeting, command) : command;
  const host = await detectHost();
  const choice = { containerd: flags.containerd, runtime: 'runc' } as const;
  if (host.usable) {
    say(`this machine has cgroup v2 and containerd ${host.containerdVersion}: the demo runs on it`);
    const { images } = await prepareNode(choice, say);
    process.env.DEMO_IMAGES = images;
    return runOnHost(line);
  }
  say(`using an embedded node, because this machine has ${host.lacks.join(', and ')}`);
  const ending = new AbortController();
  // Not `once`, as in endingSignal of test/runner: execa would end this process first.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort());
  const { exitCode } = await runInNode({
    ...choice,
    command: line,
    progress: say,
    stdio: flags.keep && process.stdin.isTTY ? 'terminal' : 'inherit',
    timeoutMs: flags.keep ? 24 * 3_600_000 : 120_000,
    signal: ending.signal,
  });
  return exitCode;
}

try {
  process.exitCode = await main();
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
