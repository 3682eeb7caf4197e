// Machines on which a jail can't be as promised: each start says exactly what is in its way, and the command that it names mends it.
import assert from 'node:assert/strict'
import { PROGRAMS, REPOSITORY, checks, cure, doctor } from './checks.mjs'
import { runInGuest } from './suites.mjs'

/** What a start makes and an end takes away; what is known of a repository is kept for the next task. */
const LEFT = `cd ~/.local/share/airlock && find tasks doctor run "$XDG_RUNTIME_DIR/airlock" -mindepth 1 2>/dev/null | sort; pgrep -f airlock-jail; true`

/** What stands in there, where the person's policy accepts it. */
const STANDS_IN = /^promises::jail::fallback::/

/** Sysctls with which administrators close user namespaces. */
export async function closed(task) {
  const { guest, top, suites, only, results } = task
  const { check } = checks(task, 'machine::closed')
  for (const [setting, columns] of [
    ['kernel.unprivileged_userns_clone', ['user']],
    ['user.max_user_namespaces', ['user', 'root']],
  ]) {
    await check('root', `p10_${setting.replaceAll('.', '_')}_can_be_set_to_0`, (run) => run(`sysctl -w ${setting}=0`))
    for (const column of columns) {
      await check(column, `p10_${setting.replaceAll('.', '_')}_is_named_and_nothing_starts`, async (run) => {
        cure(await doctor(run, 4), setting)
        const before = await run(LEFT)
        const said = await run(`${REPOSITORY} && ${PROGRAMS}/airlock run --rm --repo . -- touch ~/ran 2>&1; code=$?; test -e ~/ran && echo IT RAN; exit $code`, 4)
        assert.ok(said.includes(setting), `the refusal names ${setting}: ${said}`)
        assert.ok(!said.includes('IT RAN'))
        assert.equal(await run(LEFT), before, 'nothing is left of a refused start')
      })
    }
    if (!columns.includes('root')) await check('root', `p10_root_is_not_concerned_by_${setting.replaceAll('.', '_')}`, (run) => doctor(run, 0))
    await check(columns[0], `p10_the_command_that_doctor_names_cures_${setting.replaceAll('.', '_')}`, async (run) => {
      await run(cure(await doctor(run, 4), setting), 0, 'root')
      assert.deepEqual((await doctor(run, 0)).blockers, [])
    })
  }
  await check('root', 'user_namespaces_are_closed_once_more', (run) => run('sysctl -w kernel.unprivileged_userns_clone=0'))
  // This kernel's Landlock has no scopes: more is lost than where it has, and each loss needs a word of its own.
  const weaker = (words) => `mkdir -p ~/.config/airlock/policies && printf 'version = 1\\naccept = [${words.map((w) => `"${w}"`).join(', ')}]\\n[network]\\ndefault = "deny"\\n' >~/.config/airlock/policies/weaker.toml && ${REPOSITORY}`
  const start = `${PROGRAMS}/airlock run --policy weaker --rm --repo . -- sh -c 'echo ran; kill -0 1 2>&1; cat /etc/shadow ~/.bash_history 2>&1; true' 2>&1`
  await check('user', 'p10_without_scopes_the_word_for_a_weaker_jail_is_not_enough', async (run) => {
    const said = await run(`${weaker(['user-namespaces'])} && ${start}`, 4)
    assert.doesNotMatch(said, /^ran$/m)
    assert.match(said, /accept = \["(ends|control)"\]/)
  })
  await check('user', 'p10_with_a_word_for_each_loss_it_starts_and_says_them', async (run) => {
    const said = await run(`${weaker(['user-namespaces', 'ends', 'control'])} && ${start}`)
    assert.match(said, /^ran$/m)
    assert.match(said, /found by descent/)
  })
  const jail = suites.filter(({ suite }) => suite === 'promises::jail')
  results.push(...(await runInGuest(guest, top, jail, 'user', { only: { test: (name) => STANDS_IN.test(name) && (only === null || only.test(name)) } })))
}
