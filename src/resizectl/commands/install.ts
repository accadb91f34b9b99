import {
  type Finding,
  type Plan,
  Refusal,
  type Site,
  diagnose,
  kubeletAfterInstall,
  planInstall,
  planSwitch,
  planUninstall,
  worstOf,
} from '../../install/node/index.ts';
import { Exit } from '../command-table/index.ts';
import { changing, timeoutOf } from './changing.ts';
import type { Context, InstallOptions } from './context.ts';
import { doctorText } from './doctor.ts';
import { siteToInstall, siteToRemove } from './site.ts';
import { configuredNode } from './this-node.ts';

type Print = Pick<Context, 'print' | 'say'>;

/** `resizectl install`. Returns the exit code. */
export async function install({ print, say }: Print, options: InstallOptions): Promise<Exit> {
  let plan: Plan = { changes: [], already: [] };
  let kubelet = (): Promise<string | undefined> => Promise.resolve(undefined);
  const exit = await changing({ print, say }, options, async (signal) => {
    const site = await siteToInstall(options, signal);
    const findings = await diagnose(site.node);
    kubelet = async () => kubeletAfterInstall(site.node, findings);
    if (worstOf(unrepaired(findings, site)) !== 'failed') return (plan = await planInstall(site));
    print(doctorText(findings));
    throw new Refusal('a check failed, see above', 'fix the failed checks, and try again');
  });
  if (exit !== Exit.done || options.dryRun === true) return exit;
  const line = await kubelet();
  if (line !== undefined) print(`${line}\n`);
  if (plan.changes.length > 0) print(afterInstall(plan));
  return exit;
}

/**
 * Returns the findings that an installation does not repair. The shim takes the clients of the bypass. A given configuration
 * replaces an invalid one. An installation starts what kubelet misses, and a kubelet without its runtime ends again after each
 * start. One that uses the shim may do so because of the shim: another version or configuration may repair it, and planInstall
 * refuses what it cannot read.
 */
export function unrepaired(findings: readonly Finding[], { isConfigGiven }: Pick<Site, 'isConfigGiven'>): Finding[] {
  const lacksRuntime = findings.some(({ check, result }) => check === 'kubelet runtime' && result === 'failed');
  const repaired = [
    'bypass',
    ...(lacksRuntime ? ['kubelet runtime', 'kubelet'] : []),
    ...(isConfigGiven ? ['configuration'] : []),
  ];
  return findings.filter(({ check, isLoopAtShim }) => !repaired.includes(check) && isLoopAtShim !== true);
}

/** What to do next, and how to undo it. */
export function afterInstall({ versions }: Pick<Plan, 'versions'>): string {
  const [, kind, from] = /^(upgrade|downgrade) (\S+) to /.exec(versions ?? '') ?? [];
  const back = from === undefined ? '' : `run resizectl install of ${from}, or `;
  return [
    ...(kind === undefined ? [] : [`${kind} done: ${versions?.slice(kind.length + 1)}`]),
    'next: resizectl doctor checks this node; resizectl get pods lists its pods',
    `undo: ${back}resizectl uninstall removes the shim; pods keep running`,
    '',
  ].join('\n');
}

/** `resizectl uninstall`. Returns the exit code. */
export async function uninstall({ print, say }: Print, options: InstallOptions): Promise<Exit> {
  let kept: readonly string[] = [];
  const exit = await changing({ print, say }, options, async (signal) => {
    const site = await siteToRemove(options, { signal, say });
    if (site.node.uid !== 0)
      throw new Refusal(`running as uid ${site.node.uid}, not as root`, 'run the command as root');
    kept = [site.configFile, site.flagsFile, site.node.stateFolder];
    return planUninstall(site);
  });
  if (exit === Exit.done) print(`kept, if present: ${kept.join(', ')}\n`);
  return exit;
}

const ON = 'on: the shim acts on resizes';
const OFF = 'off: the shim forwards every call unchanged, until: resizectl on (also after a reboot)';

/** `resizectl on` and `resizectl off`. Returns the exit code. */
export async function switchTo(
  isOn: boolean,
  { print, say }: Pick<Context, 'print' | 'say'>,
  options: InstallOptions,
): Promise<Exit> {
  const exit = await changing({ print, say }, options, async (signal) => {
    const node = await configuredNode({});
    if (node.uid !== 0) throw new Refusal(`running as uid ${node.uid}, not as root`, 'run the command as root');
    return planSwitch(node, { isOn, wait: { timeoutMs: timeoutOf(options.timeout), signal } });
  });
  if (exit === Exit.done && options.dryRun !== true) print(`${isOn ? ON : OFF}\n`);
  return exit;
}
