package dev.edgedec.demo

import dev.edgedec.core.State
import org.junit.runner.RunWith
import org.robolectric.RobolectricTestRunner
import org.robolectric.annotation.Config

/** Tests of the app with a scripted decoder, on the oldest Android that it runs on and on a new one. */
@RunWith(RobolectricTestRunner::class)
@Config(application = TestApplication::class, sdk = [26, 34], qualifiers = "w411dp-h891dp-hdpi")
abstract class PhoneTest {
    protected val phone = Phone()
    protected val app: TestApplication get() = phone.application as TestApplication
    protected val engine: ScriptedEngine get() = app.engines.last()

    protected fun startReady() {
        phone.start()
        untilReady()
    }

    /** Waits for the decoder number [count] of this test. */
    protected fun untilReady(count: Int = app.engines.size.coerceAtLeast(1)) =
        phone.until("an open bundle") { app.engines.size == count && engine.state is State.Ready && status.startsWith("Ready") }

    protected val status: String get() = phone.text(R.id.status)

    protected val text: String get() = phone.text(R.id.text)

    /** Figures with ordinary spaces. */
    protected val figures: String get() = phone.text(R.id.figures).replace('\u00a0', ' ')

    protected fun decode(prompt: String) {
        phone.type(prompt)
        phone.tap(R.id.decode)
    }
}
