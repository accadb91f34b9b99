import { expect, test } from 'vitest';
import { endpointFlagsOf, flagOf } from '../../../src/kubelet/endpoint/process.ts';

test('the last occurrence of a flag counts, as --flag=value and as --flag value', () => {
  expect(flagOf(['kubelet', '--a=1', '--a', '2', '--ab=3'], '--a')).toBe('2');
  expect(flagOf(['kubelet', '--a', '2', '--a=1'], '--a')).toBe('1');
  expect(flagOf(['kubelet', '--a=x=y'], '--a')).toBe('x=y');
  expect(flagOf(['kubelet', '--a=x\ny'], '--a')).toBe('x\ny');
});

test('ignores a flag without a value, after --, or with one dash', () => {
  expect(flagOf(['kubelet', '--a'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '--', '--a=1'], '--a')).toBeUndefined();
  expect(flagOf(['kubelet', '-a=1'], '--a')).toBeUndefined();
  expect(flagOf([], '--a')).toBeUndefined();
});

test('underscores in the name of a flag count as dashes, but those in its value do not', () => {
  expect(flagOf(['kubelet', '--config_dir=/a_b'], '--config-dir')).toBe('/a_b');
  expect(flagOf(['kubelet', '--config_dir', '/a_b'], '--config-dir')).toBe('/a_b');
});

test('a flag with an empty value counts as not set', () => {
  expect(endpointFlagsOf(['kubelet', '--container-runtime-endpoint=', '--config', '', '--config-dir=/d'])).toEqual({
    endpoint: undefined,
    config: undefined,
    configDir: '/d',
  });
});
