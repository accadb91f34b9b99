import { Exit } from '../../core/index.ts';
import { diagnose, type Finding, worstOf } from '../../install/index.ts';
import { objectText, table } from '../output/text.ts';
import { sayingWaits } from '../waiting.ts';
import type { Context } from './context.ts';
import { configuredNode, type NodeOptions } from './this-node.ts';

/** Exit codes of doctor. They differ in meaning from those of the other commands. */
const exits = { ok: Exit.done, warning: Exit.failed, failed: Exit.usage } as const;

/** `resizectl doctor`. Returns the exit code. */
export async function doctor(
  { output, print, say }: Pick<Context, 'output' | 'print' | 'say'>,
  options: NodeOptions,
): Promise<Exit> {
  const findings = await sayingWaits('the checks of this node', diagnose(await configuredNode(options)), say);
  if (output === 'json' || output === 'yaml') print(objectText({ checks: findings.map(printed) }, output));
  else print(doctorText(findings));
  return exits[worstOf(findings)];
}

/** Returns a finding as programs read it. */
const printed = ({ check, result, found, remedy, details }: Finding): Finding => ({
  ...{ check, result, found, remedy },
  ...(details !== undefined && { details }),
});

/** Formats one line per check, followed by what the findings are based on and by the remedies. */
export function doctorText(findings: readonly Finding[]): string {
  const rows = findings.map(({ check, result, found }) => [check, result, found]);
  const remedies = findings
    .filter(({ remedy }) => remedy !== '')
    .flatMap(({ check, remedy }) =>
      remedy.split('\n').map((line, index) => (index === 0 ? [`  ${check}:`, line] : ['', line])),
    );
  const advice = remedies.length === 0 ? '' : `\nWhat to do:\n${table(remedies)}`;
  const details = findings.map(detailsText).join('');
  return `${table([['CHECK', 'RESULT', 'FOUND'], ...rows])}${details}${advice}`;
}

/** Lists what sets the endpoint of kubelet, the only finding with details. */
function detailsText({ details }: Finding): string {
  if (details === undefined) return '';
  return `\nRuntime endpoint of kubelet, in the order in which it is read:\n${details.map((line) => `  ${line}\n`).join('')}`;
}
