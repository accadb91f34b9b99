import { readFile, realpath } from 'node:fs/promises';
import { errnoOf } from '../../core/errors/index.ts';
import { FLAG, type Kubelet, endpointIn } from './kubelet.ts';
import { Refusal, flagsIn, withEndpoint, withFlag } from './kubelet-setting.ts';
import type { Node } from './node.ts';
import { unitProperties } from './systemctl.ts';

/** The one file that says where kubelet finds the runtime. */
export interface Setting {
  /** Itself, where a link leads to it. */
  readonly file: string;
  readonly text: string;
  /** Whether systemd has to read it anew. */
  readonly isOfUnit: boolean;
  /** What a text of this file says; undefined: nothing. */
  readonly endpointOf: (text: string) => string | undefined;
  /** The text with another endpoint. Throws Refusal. */
  readonly edited: (text: string, endpoint: string | undefined) => string;
}

/** Finds it. Throws Refusal where a person has to change it. @param wanted for what it says then */
export async function settingOf(node: Node, { source, endpoint }: Kubelet, wanted: string): Promise<Setting> {
  if (source.kind === 'flag') return flagSetting(node, endpoint, wanted);
  if (source.file === undefined)
    throw new Refusal(
      `${node.kubeletUnit} has neither --config nor ${FLAG}`,
      `give it --config with a KubeletConfiguration, or ${FLAG}=${endpoint}, and try again`,
    );
  if (!source.file.startsWith('/'))
    throw new Refusal(`${node.kubeletUnit} has --config=${source.file}, which is relative`, 'make it absolute');
  const file = await realpath(source.file);
  return {
    ...{ file, text: await readFile(file, 'utf8'), isOfUnit: false },
    endpointOf: (text) => endpointIn(text, file),
    edited: (text, other) => withEndpoint(text, other, file),
  };
}

async function flagSetting(node: Node, endpoint: string, wanted: string): Promise<Setting> {
  const files = await filesOf(node.kubeletUnit);
  const found = files.flatMap(({ file, text, isOfUnit }) =>
    flagsIn(text).map((flag) => ({ file, text, isOfUnit, flag })),
  );
  const cure = `set ${FLAG}=${wanted} there yourself, and restart ${node.kubeletUnit}`;
  const [one, ...others] = found;
  const all = files.map(({ file }) => file).join(', ');
  if (one === undefined) throw new Refusal(`${FLAG} is in none of ${node.kubeletUnit}'s files: ${all}`, cure);
  const [places] = [found.map(({ file }) => file).join(', ')];
  if (others.length > 0) throw new Refusal(`${FLAG} is in several places of ${node.kubeletUnit}: ${places}`, cure);
  if (one.flag.endpoint !== endpoint)
    throw new Refusal(`${one.file} says ${FLAG}=${one.flag.endpoint}, and kubelet runs with ${endpoint}`, cure);
  const { file, text, isOfUnit } = one;
  return {
    ...{ file, text, isOfUnit },
    endpointOf: (other) => flagsIn(other)[0]?.endpoint,
    edited: (other, to) => withFlag(other, to ?? endpoint, file),
  };
}

interface UnitFile {
  readonly file: string;
  readonly text: string;
  readonly isOfUnit: boolean;
}

/** The files that a unit is made of, and where its environment comes from. */
async function filesOf(unit: string): Promise<readonly UnitFile[]> {
  const property = await unitProperties(unit, ['FragmentPath', 'DropInPaths', 'EnvironmentFiles']);
  const ofUnit = [...property('FragmentPath'), ...property('DropInPaths').flatMap((paths) => paths.split(' '))];
  // `/etc/default/kubelet (ignore_errors=yes)`, one a line.
  const environment = property('EnvironmentFiles').map((entry) => entry.replace(/ \(ignore_errors=(yes|no)\)$/, ''));
  const all = [
    ...ofUnit.map((file) => ({ file, isOfUnit: true })),
    ...environment.map((file) => ({ file, isOfUnit: false })),
  ].filter(({ file }) => file !== '');
  const read = await Promise.all(all.map(async (at) => ({ ...at, text: await textOf(at.file) })));
  return read.flatMap(({ file, text, isOfUnit }) => (text === undefined ? [] : [{ file, text, isOfUnit }]));
}

async function textOf(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
