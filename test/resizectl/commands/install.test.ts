import { expect, test } from 'vitest';
import { afterInstall } from '../../../src/resizectl/commands/install.ts';

test('an upgrade ends with both versions, what to do next, and how to undo it', () => {
  expect(afterInstall({ versions: 'upgrade 0.1.0 to 0.2.0' })).toBe(
    [
      'upgrade done: 0.1.0 to 0.2.0',
      'next: resizectl doctor checks this node; resizectl get pods lists its pods',
      'undo: run resizectl install of 0.1.0, or resizectl uninstall removes the shim; pods keep running',
      '',
    ].join('\n'),
  );
});

test.each([{}, { versions: 'install 0.2.0' }, { versions: 'another build of 0.2.0' }])(
  'an installation that is no upgrade says what to do next: %j',
  (versions) => {
    expect(afterInstall(versions)).toBe(
      'next: resizectl doctor checks this node; resizectl get pods lists its pods\n' +
        'undo: resizectl uninstall removes the shim; pods keep running\n',
    );
  },
);
