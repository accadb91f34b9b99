import { expect, test } from 'vitest';
import { html } from '../../../src/monitoring/page/html.ts';

test('a template escapes inserted strings, and nothing else', () => {
  expect(html`<p title="${`"'<&>`}">${html`<b>${'<i>'}</b>`}${[html`<br>`, html`<hr>`]}${5}</p>`.text).toBe(
    '<p title="&quot;&#39;&lt;&amp;&gt;"><b>&lt;i&gt;</b><br><hr>5</p>',
  );
});
