"""The statements that gh-ost and pt-online-schema-change send, in their order."""

from __future__ import annotations

import threading

from tests.support.capture import eventually
from tests.support.database import Database


def gh_ost(database: Database, table: str, change: str = "add column w int not null default 5") -> None:
    """Change the definition as gh-ost does: copy to a ghost table, apply changes there, swap under a lock."""
    ghost, former, changelog = f"_{table}_gho", f"_{table}_del", f"_{table}_ghc"
    execute = database.execute
    execute(
        f"create /* gh-ost */ table `{changelog}` (id bigint auto_increment primary key, hint varchar(64) not null)"
    )
    execute(f"insert /* gh-ost */ into `{changelog}` (id, hint) values (NULL, 'state at')")
    execute(f"create /* gh-ost */ table `{ghost}` like `{table}`")
    execute(f"alter /* gh-ost */ table `{ghost}` {change}")
    execute(
        f"insert /* gh-ost */ ignore into `{ghost}` (`id`, `v`) "
        f"(select `id`, `v` from `{table}` force index (`PRIMARY`) where `id` <= 120 lock in share mode)"
    )
    execute(f"update `{table}` set v = 'changed meanwhile' where id in (7, 150)")
    execute(f"delete from `{table}` where id = 9")
    execute(
        f"insert /* gh-ost */ ignore into `{ghost}` (`id`, `v`) "
        f"(select `id`, `v` from `{table}` force index (`PRIMARY`) where `id` > 120 lock in share mode)"
    )
    execute(f"replace /* gh-ost */ into `{ghost}` (`id`, `v`) values (7, 'changed meanwhile')")
    execute(f"delete /* gh-ost */ from `{ghost}` where `id` = 9")
    execute(f"create /* gh-ost */ table `{former}` (id int auto_increment primary key) comment='ghost-cut-over-sentry'")
    rename = f"rename /* gh-ost */ table `{table}` to `{former}`, `{ghost}` to `{table}`"
    with database.connect() as locking, locking.cursor() as cursor:
        cursor.execute(f"lock /* gh-ost */ tables `{table}` write, `{former}` write")
        swapping = threading.Thread(target=lambda: _run(database, rename))
        swapping.start()
        eventually(lambda: _waits(database), "the rename waits for the lock")
        cursor.execute(f"drop /* gh-ost */ table if exists `{former}`")
        cursor.execute("unlock /* gh-ost */ tables")
        swapping.join(timeout=60)
    execute(f"drop /* gh-ost */ table if exists `{changelog}`")
    execute(f"drop /* gh-ost */ table if exists `{former}`")


def pt_online_schema_change(database: Database, table: str) -> None:
    """Add a column as pt-online-schema-change does: triggers keep the copy up to date."""
    copy, former, trigger = f"_{table}_new", f"_{table}_old", f"pt_osc_{table}"
    execute = database.execute
    execute(f"CREATE TABLE `{copy}` (id INT PRIMARY KEY, v VARCHAR(50))")
    execute(f"ALTER TABLE `{copy}` ADD COLUMN w INT NOT NULL DEFAULT 5")
    execute(
        f"CREATE TRIGGER `{trigger}_del` AFTER DELETE ON `{table}` FOR EACH ROW "
        f"DELETE IGNORE FROM `{copy}` WHERE `{copy}`.`id` <=> OLD.`id`"
    )
    execute(
        f"CREATE TRIGGER `{trigger}_upd` AFTER UPDATE ON `{table}` FOR EACH ROW BEGIN "
        f"DELETE IGNORE FROM `{copy}` WHERE !(OLD.`id` <=> NEW.`id`) AND `{copy}`.`id` <=> OLD.`id`; "
        f"REPLACE INTO `{copy}` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`); END"
    )
    execute(
        f"CREATE TRIGGER `{trigger}_ins` AFTER INSERT ON `{table}` FOR EACH ROW "
        f"REPLACE INTO `{copy}` (`id`, `v`) VALUES (NEW.`id`, NEW.`v`)"
    )
    execute(f"update `{table}` set v = 'changed meanwhile' where id in (7, 150)")
    execute(f"INSERT LOW_PRIORITY IGNORE INTO `{copy}` (`id`, `v`) SELECT `id`, `v` FROM `{table}` LOCK IN SHARE MODE")
    execute(f"delete from `{table}` where id = 9")
    execute(f"RENAME TABLE `{table}` TO `{former}`, `{copy}` TO `{table}`")
    execute(f"DROP TABLE IF EXISTS `{former}`")
    for name in ("del", "upd", "ins"):
        execute(f"DROP TRIGGER IF EXISTS `{trigger}_{name}`")


def _run(database: Database, sql: str) -> None:
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(sql)


def _waits(database: Database) -> bool:
    return bool(
        database.execute(
            "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'rename%%' "
            "AND state LIKE 'Waiting for table%%' AND db = %s",
            (database.name,),
        )
    )
