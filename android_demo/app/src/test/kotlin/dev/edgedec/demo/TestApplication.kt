package dev.edgedec.demo

import java.util.concurrent.CopyOnWriteArrayList

/** The app with a scripted decoder, and bundles that are names only. */
class TestApplication : DemoApplication() {
    override var shelf: Shelf = FakeShelf("demo")
    val engines = CopyOnWriteArrayList<ScriptedEngine>()
    @Volatile var chat = false
    @Volatile var failure: String? = null

    override fun hint() = PaceHint.none

    override fun engine(threads: Int?): Engine = ScriptedEngine(threads, chat, failure).also { engines += it }
}
