package dev.edgedec.demo

import android.app.Application
import android.content.ComponentName
import android.os.Bundle
import android.os.PowerManager
import android.view.View
import android.widget.EditText
import android.widget.TextView
import org.robolectric.Robolectric
import org.robolectric.RuntimeEnvironment
import org.robolectric.Shadows.shadowOf
import org.robolectric.android.controller.ActivityController
import org.robolectric.android.controller.ServiceController
import org.robolectric.shadows.ShadowChoreographer
import org.robolectric.shadows.ShadowLooper
import java.time.Duration
import java.util.concurrent.TimeUnit

/** The app on a phone of Robolectric's: what a user and Android do to it. */
class Phone {
    val application: Application = RuntimeEnvironment.getApplication()
    private lateinit var service: ServiceController<DecodingService>
    private lateinit var controller: ActivityController<MainActivity>

    init {
        // As a screen has; Robolectric's own of a millisecond draws each animation many times over.
        ShadowChoreographer.setFrameDelay(Duration.ofMillis(FRAME_MS))
    }

    val activity: MainActivity get() = controller.get()

    /** The first start, or one with what an earlier process has left. */
    fun start(saved: Bundle? = null) {
        offerService()
        controller = Robolectric.buildActivity(MainActivity::class.java)
        if (saved == null) controller.setup() else controller.setup(saved)
        idle()
    }

    /** Turns the phone: Android makes the activity anew. */
    fun turn(qualifiers: String = "+land") {
        RuntimeEnvironment.setQualifiers(qualifiers)
        controller.configurationChange()
        controller.visible()
        idle()
    }

    fun hide() {
        controller.pause().stop()
        if (shadowOf(application).boundServiceConnections.isEmpty()) service.destroy()
        idle()
    }

    fun comeBack() {
        offerService()
        controller.restart().start().resume()
        idle()
    }

    /** Android ends the hidden app's process, and starts another one when the user comes back. */
    fun killAndComeBack() {
        val saved = Bundle()
        controller.pause().stop().saveInstanceState(saved)
        service.destroy()
        start(saved)
    }

    fun trimMemory(level: Int) {
        service.get().onTrimMemory(level)
        idle()
    }

    fun heat(status: Int) {
        shadowOf(application.getSystemService(PowerManager::class.java)).setCurrentThermalStatus(status)
        idle()
    }

    fun back() {
        @Suppress("DEPRECATION")
        activity.onBackPressed()
        idle()
    }

    fun tap(id: Int) {
        check(view<View>(id).isEnabled) { "expected an enabled ${name(id)}" }
        view<View>(id).performClick()
        idle()
    }

    fun type(words: String) = view<EditText>(R.id.prompt).setText(words)

    fun <T : View> view(id: Int): T = activity.findViewById(id)

    fun text(id: Int): String = view<TextView>(id).text.toString()

    fun visible(id: Int): Boolean = view<View>(id).isShown

    /** Lets some time pass on the phone. */
    fun idle(ms: Long = 300) = ShadowLooper.idleMainLooper(ms, TimeUnit.MILLISECONDS)

    /** Lets time pass until other threads have brought something about. */
    fun until(what: String, met: () -> Boolean) {
        val deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S)
        idle()
        while (!met()) {
            check(System.nanoTime() < deadline) { "expected $what within $LIMIT_S s; the phone says '${text(R.id.status)}' and '${text(R.id.error)}'" }
            Thread.sleep(2)
            idle()
        }
    }

    private fun offerService() {
        service = Robolectric.buildService(DecodingService::class.java).create()
        val name = ComponentName(application, DecodingService::class.java)
        shadowOf(application).setComponentNameAndServiceForBindService(name, service.get().onBind(null))
    }

    private fun name(id: Int): String = activity.resources.getResourceEntryName(id)

    private companion object {
        /** No machine is so busy. */
        const val LIMIT_S = 60L
        const val FRAME_MS = 16L
    }
}
