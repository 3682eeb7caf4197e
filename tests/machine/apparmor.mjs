// The package's AppArmor profile, in its form for the parser that Debian 12 has, with the programs where the package puts them.
import assert from 'node:assert/strict'
import { PROGRAMS, REPOSITORY, checks, doctor, weak } from './checks.mjs'

const INSTALLED = '/usr/lib/airlock'

export async function apparmor(task) {
  const { check } = checks(task, 'machine::apparmor')
  const profile = `${task.top}/policies/apparmor/airlock-jail.before-4`
  let before = null
  await check('user', 'without_the_profile_it_starts', async (run) => (before = weak(await doctor(run, 0))))
  await check('root', 'p10_this_parser_takes_the_form_before_4_alone', async (run) => {
    await run(`install -d ${INSTALLED} && install -m 0755 ${PROGRAMS}/airlock ${PROGRAMS}/airlock-warden ${INSTALLED}/ && install -m 0755 ${PROGRAMS}/static/airlock-jail ${INSTALLED}/`)
    await run(`apparmor_parser --version | head -1 | grep -F ' 3.'`)
    await run(`apparmor_parser -Q ${task.top}/policies/apparmor/airlock-jail`, 1)
    await run(`install -m 0644 ${profile} /etc/apparmor.d/airlock-jail && apparmor_parser -r /etc/apparmor.d/airlock-jail`)
  })
  for (const column of ['user', 'root']) {
    await check(column, 'p10_under_the_profile_the_same_promises_are_kept', async (run) => {
      const now = await doctor(run, 0, { program: `${INSTALLED}/airlock` })
      assert.deepEqual(now.blockers, [])
      assert.deepEqual(weak(now), before)
    })
    await check(column, 'a_run_under_the_profile_shows_its_label', async (run) => {
      const said = await run(`${REPOSITORY} && ${INSTALLED}/airlock run --rm --repo . -- cat /proc/self/attr/current 2>/dev/null`)
      assert.match(said, /^airlock-jail( |$|\/\/)/m)
    })
  }
  await check('user', 'the_installed_program_is_not_started_by_a_copy_of_its_starters_under_the_profile', async (run) => {
    const said = await run(`${PROGRAMS}/airlock doctor --json 2>/dev/null >/dev/null; AIRLOCK=x; ln -sf ${INSTALLED}/airlock-jail /tmp/airlock-jail; cp ${PROGRAMS}/airlock ${PROGRAMS}/airlock-warden /tmp/ && /tmp/airlock doctor 2>&1; test $? = 4`)
    assert.match(said, /not started by a program that root installed beside it/)
  })
}
