import { version } from '../../config/index.ts';
import { messageOf, grpcErrorText } from '../../core/errors/index.ts';
import type { CommandOptions, Context } from './context.ts';
import { type CommandName, Exit } from '../command-table.ts';
import { completionScript, isShell } from './completion.ts';
import { events, watchPods } from './events.ts';
import { manualPage } from './manual.ts';
import { exitOf, resize } from './resize.ts';
import {
  UsageError,
  endText,
  findPod,
  fullName,
  objectText,
  podDescription,
  podText,
  podsTable,
  printable,
} from '../output/index.ts';

/** Runs a command with its arguments (`CHANGE...` counts as several) and options. Returns the exit code. */
export type Action = (context: Context, args: readonly string[], options: CommandOptions) => Promise<Exit>;

const first = (args: readonly string[]): string => args[0] ?? '';
const rest = (args: readonly string[]): readonly string[] => args.slice(1);

export const actions: Readonly<Record<CommandName, Action>> = {
  'get pods': async ({ client, output, print }) => {
    const { pods } = await client.call('ListPods', {});
    if (output === 'table') print(podsTable(pods));
    else if (output === 'name') print(pods.map((pod) => `${fullName(pod.identity)}\n`).join(''));
    else print(objectText({ pods }, output));
    return Exit.done;
  },
  'get pod': (context, args) => showPod(context, first(args), podText),
  'describe pod': (context, args) => showPod(context, first(args), podDescription),
  plan: (context, args, options) => resize(context, first(args), rest(args), { ...options, dryRun: true }),
  resize: (context, args, options) => resize(context, first(args), rest(args), options),
  watch: async (context, args) => {
    await watchPods(context, args[0]);
    return Exit.done;
  },
  events: async (context, args) => {
    await events(context, args[0]);
    return Exit.done;
  },
  cancel: async ({ client, output, print }, args) => {
    const { resize: ended } = await client.call('CancelResize', { id: first(args) });
    print(output === 'json' || output === 'yaml' ? objectText({ resize: ended }, output) : endText(ended));
    // The cancellation succeeded, so this is not the exit code 5 of a canceled resize.
    return ended.state === 'CANCELED' ? Exit.done : exitOf(ended);
  },
  // Loaded on demand: no other command needs these modules.
  doctor: async (context, _args, options) => (await import('./doctor.ts')).doctor(context, options),
  install: async (context, _args, options) => (await import('./install.ts')).install(context, options),
  uninstall: async (context, _args, options) => (await import('./install.ts')).uninstall(context, options),
  'bypass on': async (context) => (await import('./bypass.ts')).bypassOn(context),
  'bypass off': async (context) => (await import('./bypass.ts')).bypassOff(context),
  'bypass drain': async (context) => (await import('./bypass.ts')).bypassDrain(context),
  on: async (context, _args, options) => (await import('./switch.ts')).switchTo(true, context, options),
  off: async (context, _args, options) => (await import('./switch.ts')).switchTo(false, context, options),
  'config check': async (context, args) => (await import('./config.ts')).checkConfig(context, args[0]),
  'config show': async (context, args) => (await import('./config.ts')).showConfig(context, args[0]),
  version: async ({ client, print }) => {
    print(`resizectl ${version}\n`);
    // An empty grpc.health.v1.HealthCheckRequest asks for the health of the whole process.
    const answers = await client.raw('/grpc.health.v1.Health/Check', Buffer.alloc(0), 5000).then(
      () => 'answers',
      (error: unknown) => `does not answer: ${printable(grpcErrorText(messageOf(error)))}`,
    );
    print(`resize API at ${client.endpoint}: ${answers}\n`);
    return Exit.done;
  },
  completion: ({ print }, args) => {
    const shell = first(args);
    if (!isShell(shell)) throw new UsageError(`invalid shell ${JSON.stringify(shell)}: expected bash, zsh or fish`);
    print(completionScript(shell));
    return Promise.resolve(Exit.done);
  },
  man: ({ print }) => {
    print(manualPage());
    return Promise.resolve(Exit.done);
  },
};

async function showPod({ client, output, print }: Context, text: string, view: typeof podText): Promise<Exit> {
  const { pod } = await client.call('GetPod', { pod: await findPod(client, text) });
  if (output === 'table') print(view(pod));
  else print(output === 'name' ? `${fullName(pod.identity)}\n` : objectText({ pod }, output));
  return Exit.done;
}
