import { Exit, grpcErrorText, messageOf, version } from '../../core/index.ts';
import type { Messages } from '../../server/api/messages.ts';
import type { CommandName } from '../command-texts.ts';
import { completionScript, isShell } from '../output/completion.ts';
import { UsageError } from '../output/failure.ts';
import { manualPage } from '../output/manual.ts';
import { readPod } from '../output/pods.ts';
import { fullName, objectText, printable } from '../output/text.ts';
import { inOrder, podDescription, podsTable, podText } from '../output/views.ts';
import { cancel } from './cancel.ts';
import type { CommandOptions, Context } from './context.ts';
import { events, watchPods } from './events.ts';
import { resize } from './resize.ts';
import { top } from './top.ts';

/** Runs a command with its arguments (`CHANGE...` counts as several) and options. Returns the exit code. */
export type Action = (context: Context, args: readonly string[], options: CommandOptions) => Promise<Exit>;

const first = (args: readonly string[]): string => args[0] ?? '';
const rest = (args: readonly string[]): readonly string[] => args.slice(1);

export const actions: Readonly<Record<CommandName, Action>> = {
  'get pods': getPods,
  'get pod': (context, args, options) =>
    args.length === 0 || options.watch === true ? getPods(context, args, options) : showPods(context, args, podText),
  'describe pod': (context, args) => showPods(context, args, podDescription),
  top: async (context, args, options) => {
    // As in kubectl: top pods NAME.
    await top(context, ['pods', 'pod', 'po'].includes(first(args)) ? rest(args) : args, options);
    return Exit.done;
  },
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
  cancel: (context, args) => cancel(context, first(args)),
  // Loaded on demand: no other command needs these modules.
  doctor: async (context, _args, options) => (await import('./doctor.ts')).doctor(context, options),
  install: async (context, _args, options) => (await import('./install.ts')).install(context, options),
  uninstall: async (context, _args, options) => (await import('./install.ts')).uninstall(context, options),
  'bypass on': async (context) => (await import('./bypass.ts')).bypassOn(context),
  'bypass off': async (context) => (await import('./bypass.ts')).bypassOff(context),
  'bypass drain': async (context, args) => (await import('./bypass.ts')).bypassDrain(context, args),
  on: async (context, _args, options) => (await import('./install.ts')).switchTo(true, context, options),
  off: async (context, _args, options) => (await import('./install.ts')).switchTo(false, context, options),
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

async function getPods(context: Context, args: readonly string[], options: CommandOptions): Promise<Exit> {
  const { output, print, isWide, namespace } = context;
  if (options.watch === true) {
    if (args.length > 1) throw new UsageError('--watch: expected one pod or none');
    await watchPods(context, args[0]);
    return Exit.done;
  }
  const pods = await listPods(context, args);
  if (output === 'table' && pods.length === 0 && namespace !== undefined && options.headers !== false)
    print(`no pods of namespace ${printable(namespace)} on this node\n`);
  else if (output === 'table') print(podsTable(pods, isWide, options.headers));
  else if (output === 'name') print(pods.map((pod) => `${fullName(pod.identity)}\n`).join(''));
  else print(objectText({ pods }, output));
  return Exit.done;
}

/** Returns these pods, or all pods of the namespace. */
async function listPods(context: Context, texts: readonly string[]): Promise<readonly Messages['Pod'][]> {
  const { client, namespace } = context;
  if (texts.length > 0) return Promise.all(texts.map((text) => readPod(context, text)));
  const { pods } = await client.call('ListPods', {});
  return inOrder(pods.filter(({ identity }) => namespace === undefined || identity.namespace === namespace));
}

async function showPods(context: Context, texts: readonly string[], view: typeof podText): Promise<Exit> {
  const { output, print } = context;
  const pods = await listPods(context, texts);
  const [only, ...more] = pods;
  if (output === 'name') print(pods.map((pod) => `${fullName(pod.identity)}\n`).join(''));
  else if (output !== 'table') print(objectText(more.length === 0 ? { pod: only } : { pods }, output));
  else if (more.length === 0) print(pods.map(view).join(''));
  else print(pods.map((pod) => `${fullName(pod.identity)}:\n${view(pod)}`).join('\n'));
  return Exit.done;
}
