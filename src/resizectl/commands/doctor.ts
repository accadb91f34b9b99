import { type Finding, diagnose, worstOf } from '../../install/node/index.ts';
import { Exit } from '../command-table.ts';
import type { Context } from './context.ts';
import { type NodeOptions, thisNode } from './this-node.ts';
import { objectText, table } from '../output/index.ts';

/** Of doctor alone: what else ends with these has another meaning. */
const exits = { ok: Exit.done, warning: Exit.failed, failed: Exit.usage } as const;

/** `resizectl doctor`. Gives the exit code. */
export async function doctor(
  { output, print }: Pick<Context, 'output' | 'print'>,
  options: NodeOptions,
): Promise<Exit> {
  const findings = await diagnose(thisNode(options));
  if (output === 'json' || output === 'yaml') print(objectText({ checks: findings }, output));
  else print(doctorText(findings));
  return exits[worstOf(findings)];
}

/** A line for each check; beneath, what to do. */
export function doctorText(findings: readonly Finding[]): string {
  const rows = findings.map(({ check, result, says }) => [check, result, says]);
  const cures = findings.filter(({ cure }) => cure !== '').map(({ check, cure }) => [`  ${check}:`, cure]);
  const todo = cures.length === 0 ? '' : `\nWhat to do:\n${table(cures)}`;
  return `${table([['CHECK', 'RESULT', 'FOUND'], ...rows])}${todo}`;
}
